"""A progress bar on the terminal, for work that takes more than two seconds."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from flatgauge.cli.processes import speaks
from flatgauge.deadline import Step
from flatgauge.progress import Observer, plan_shown, step_shown

DELAY = 2.0
"""Seconds before the bar appears."""


class ProgressBar(Observer):
    """What goes on, how much is done, and an estimate of the rest, on stderr.

    It is what the library's `progress=` takes. Without a terminal nothing is written.
    """

    def __init__(self) -> None:
        console = self._console = Console(stderr=True)
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("about", markup=False),
            TimeRemainingColumn(),
            TextColumn("left", markup=False),
            console=console,
            transient=True,
            disable=not (console.is_terminal and speaks()),
        )
        self._what = "loading"
        self._task = self._bar.add_task("loading", total=None)
        self._timer = threading.Timer(DELAY, self._bar.start)
        self._timer.daemon = True

    def __call__(self, what: str, index: int, count: int) -> None:
        """Say what goes on: `index` of `count` is done."""
        self._what = what
        self._bar.update(self._task, description=what, completed=index, total=count)

    def planned(self, expected: Mapping[str, float | None], budget: float) -> None:
        """Say what each will take, if that is long, above the bar."""
        long = sum(seconds or 0.0 for seconds in expected.values()) > DELAY
        if long and self._console.is_terminal:
            for line in plan_shown(expected, budget):
                self._console.print(line, markup=False, highlight=False)

    def inside(self, step: Step) -> None:
        """Say how far it is, in the bar's line."""
        self._bar.update(self._task, description=f"{self._what}: {step_shown(step)}")

    def __enter__(self) -> ProgressBar:
        self._timer.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._timer.cancel()
        self._timer.join()
        self._bar.stop()
