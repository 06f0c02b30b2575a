"""What a run tells while it goes on, and lines that say it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TextIO

from flatgauge import deadline
from flatgauge.deadline import Step
from flatgauge.durations import time_shown
from flatgauge.tables import format_value

Progress = Callable[[str, int, int], None]
# Seconds between two lines, where a line cannot be rewritten, and where it can.
SELDOM, OFTEN = 10.0, 0.2


class Observer:
    """Hears more of a run than a plain function (what, index, count) does."""

    def __call__(self, what: str, index: int, count: int) -> None:
        """`index` of `count` measures are done, and `what` begins."""

    def planned(self, expected: Mapping[str, float | None], budget: float) -> None:
        """Before the first: what each is expected to take in seconds, if that is known.

        Args:
            expected: by request, in the order in which they will be measured.
            budget: the seconds there are; infinite without a budget.
        """

    def inside(self, step: Step) -> None:
        """How far the measure at work is."""


class Lines(Observer):
    """Writes lines: one that is rewritten on a terminal, else one every ten seconds.

    Args:
        stream: where to; stderr if None.
    """

    def __init__(self, stream: TextIO | None = None):
        self._stream = sys.stderr if stream is None else stream
        self._rewrites = self._stream.isatty()
        self._last = -SELDOM
        self._width = 0
        self._head = ""

    def __call__(self, what: str, index: int, count: int) -> None:
        """A line for every measure."""
        self._head = f"{what} ({index + 1} of {count})"
        self._write(self._head)

    def planned(self, expected: Mapping[str, float | None], budget: float) -> None:
        """A line for each, which stays."""
        for line in plan_shown(expected, budget):
            print(line, file=self._stream, flush=True)

    def inside(self, step: Step) -> None:
        """A line, unless the last one was just now."""
        pause = OFTEN if self._rewrites else SELDOM
        if deadline.clock() - self._last >= pause:
            self._write(f"{self._head}: {step_shown(step)}")

    def close(self) -> None:
        """Take the rewritten line away."""
        if self._rewrites and self._width:
            print(
                "\r" + " " * self._width + "\r", end="", file=self._stream, flush=True
            )

    def _write(self, line: str) -> None:
        self._last = deadline.clock()
        if not self._rewrites:
            print(line, file=self._stream, flush=True)
            return
        print("\r" + line.ljust(self._width), end="", file=self._stream, flush=True)
        self._width = len(line)


def plan_shown(expected: Mapping[str, float | None], budget: float) -> list[str]:
    """A plan in words, a line for each measure.

    >>> print(*plan_shown({"hessian-trace": 75.0, "my-own": None}, 60.0), sep=chr(10))
    in 1 min 0 s, of about 1 min 15 s:
      hessian-trace: about 1 min 15 s
      my-own: not known
    """
    total = sum(seconds for seconds in expected.values() if seconds is not None)
    about = f"about {time_shown(total)}"
    head = about if budget == float("inf") else f"in {time_shown(budget)}, of {about}"
    return [
        f"{head}:",
        *(
            f"  {request}: "
            + ("not known" if seconds is None else f"about {time_shown(seconds)}")
            for request, seconds in expected.items()
        ),
    ]


def step_shown(step: Step) -> str:
    """How far a measure is, in words.

    >>> step_shown(Step("", 12, 300, 3.14159, 0.2, 30.0, 50.0, 60.0))
    '12 of at most 300 products, 3.14159 ± 0.2 so far, about 20 s to go, budget 1 min 0 s'
    """
    parts = []
    if step.products:
        most = "" if step.most is None else f" of at most {step.most}"
        parts.append(f"{step.products}{most} products")
    if step.estimate is not None:
        parts.append(f"{format_value(step.estimate, step.error)} so far")
    if step.expected is not None and step.expected > step.seconds:
        parts.append(f"about {time_shown(step.expected - step.seconds)} to go")
    if step.left != float("inf"):
        parts.append(f"budget {time_shown(step.left)}")
    return ", ".join(parts) or f"{time_shown(step.seconds)} so far"
