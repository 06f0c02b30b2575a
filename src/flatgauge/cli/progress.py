"""A progress bar on the terminal, for work that takes more than two seconds."""

from __future__ import annotations

import threading
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

DELAY = 2.0
"""Seconds before the bar appears."""


class ProgressBar:
    """What goes on, how much is done, and an estimate of the rest, on stderr.

    It is called with (what, index, count), as the library's `progress=` is. Without a
    terminal nothing is written.
    """

    def __init__(self) -> None:
        console = Console(stderr=True)
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
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("loading", total=None)
        self._timer = threading.Timer(DELAY, self._bar.start)
        self._timer.daemon = True

    def __call__(self, what: str, index: int, count: int) -> None:
        """Say what goes on: `index` of `count` is done."""
        self._bar.update(self._task, description=what, completed=index, total=count)

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
