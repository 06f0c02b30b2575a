"""What a paper declares: its runs, its figures, its page; and what a run is given."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch


@dataclass(frozen=True)
class Context:
    """Where and how large a run is made.

    Attributes:
        quick: reduced sizes for two CPU cores, on data that need no files.
        data: the folder that holds mnist/ and cifar10/ with their standard files.
        device: where the run computes.
    """

    quick: bool
    data: Path | None
    device: torch.device


@dataclass(frozen=True)
class Tolerance:
    """How far a number may be from the stored one and still be the same number.

    Processors round in different orders, so bits are never compared. Stored and today's
    value agree if |stored - today| <= absolute + relative * |stored|.
    """

    relative: float = 1e-6
    absolute: float = 1e-8


@dataclass(frozen=True)
class Run:
    """One piece of work with one stored result.

    Attributes:
        name: unique within the paper; the result goes to <name>.json.
        settings: all that the result depends on, as plain JSON data. A stored result
            with other settings is made again.
        compute: (context, settings) -> plain JSON data; deterministic by the seeds in
            its settings, but for "times", which is stored apart: what took how many
            seconds. It is given the settings as they are stored (tuples are lists).
        needs: ("data",) where the full form must have --data.
        on_cpu: whether it computes on the CPU, whatever device was asked for.
        revision: raised whenever the code gives another result for the same settings. A
            stored result of another revision is made again.
        tolerances: key of the result -> the tolerance of all that is below it, or None
            for what is not compared with the stored result; the innermost key decides.
        repeats: False where rounding decides which point a training reaches, so that
            another processor gives another result: it is not compared.
        long: whether the full form takes minutes of a GPU; it may be missing among the
            results, and the page then says so.
    """

    name: str
    settings: dict[str, Any]
    compute: Callable[[Context, dict[str, Any]], dict[str, Any]]
    needs: tuple[str, ...] = ()
    on_cpu: bool = False
    revision: int = 1
    tolerances: Mapping[str, Tolerance | None] = field(default_factory=dict)
    repeats: bool = True
    long: bool = False

    @property
    def data(self) -> str:
        """The name of the data that it reads, if it reads any."""
        return self.settings.get("data", "mnist")

    def placed(self, context: Context) -> Context:
        """The context with the device that this run computes on."""
        return replace(context, device=torch.device("cpu")) if self.on_cpu else context


class Results(Mapping[str, dict[str, Any]]):
    """The finished runs: name -> what the run returned. A run not made is missing.

    Attributes:
        records: name -> the whole stored file, with settings, provenance and times.
    """

    def __init__(self, records: Mapping[str, dict[str, Any]]) -> None:
        self.records = dict(records)

    def __getitem__(self, name: str) -> dict[str, Any]:
        return self.records[name]["result"]

    def __iter__(self) -> Iterator[str]:
        return iter(self.records)

    def __len__(self) -> int:
        return len(self.records)


@dataclass(frozen=True)
class Paper:
    """A paper's experiments.

    Attributes:
        name: the folder under papers/, such as "dinh2017".
        title: the heading of its page.
        runs: quick -> the declared runs, in the order in which they are made.
        figures: draws into a folder, from stored results only.
        page: the body of the page from stored results and expected.json, starting below
            the title; commands, data and times are added to it by the runner.
    """

    name: str
    title: str
    runs: Callable[[bool], list[Run]]
    figures: Callable[[Results, Path], None]
    page: Callable[[Results, dict[str, Any]], str]
