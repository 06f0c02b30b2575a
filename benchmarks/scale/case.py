"""A network with its data, and a row that is measured on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

import flatgauge as fg
from benchmarks.contestants import in_words
from benchmarks.networks import Batch
from benchmarks.timing import free, once

Found = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A network and its batches, on the device, at one precision."""

    name: str
    model: nn.Module
    batches: list[Batch]
    device: str
    precision: str

    def objective(self, **options: Any) -> tuple[fg.Objective, float]:
        """A fresh one, which knows nothing of earlier rows, and the seconds it took."""
        made: list[fg.Objective] = []
        settings = {"precision": self.precision, **options}

        def build() -> None:
            made.append(fg.Objective(self.model, self.batches, **settings))

        seconds = once(build, self.device)
        return made[0], seconds


# Stores what is known of a row that is still being measured.
Note = Callable[[Found], None]


@dataclass(frozen=True)
class Row:
    """One row: what it is called, how it is measured, about how many products it takes."""

    name: str
    run: Callable[[Case, Note], Found]
    products: int
    precision: str | None = None


def measure_row(row: Row, case: Case, note: Note) -> Found:
    """The row with its peaks of memory; what breaks it is told in its place."""
    identity = {
        "network": case.name,
        "precision": row.precision or case.precision,
        "contestant": row.name,
    }
    on_gpu = case.device == "cuda"
    free(case.device)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    try:
        found = row.run(case, lambda part: note(identity | part | {"unfinished": True}))
    except Exception as error:
        found = {"error": in_words(error)}
    if on_gpu:
        found["peak"] = torch.cuda.max_memory_allocated()
        found["reserved"] = torch.cuda.max_memory_reserved()
    case.model.zero_grad()
    return identity | found
