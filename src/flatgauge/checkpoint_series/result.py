"""The numbers of many checkpoints, as curves over the steps of their runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from flatgauge.exports import Tabular
from flatgauge.results import Measurement, Report, measured_with
from flatgauge.tables import checkpoints_in_words, html_table, table

MARKS = "▁▂▃▄▅▆▇█"
WIDEST = 24
"""Characters of a curve in a table."""
WIDE = 30.0
"""A curve whose largest value is so many times its smallest is drawn over logarithms."""


@dataclass(frozen=True)
class Point:
    """A checkpoint's report, in its run ("" if there is one only) and at its step."""

    run: str
    name: str
    step: int | None
    report: Report


@dataclass(frozen=True, repr=False)
class Series(Tabular):
    """Checkpoints in the order of their runs and steps, and why others are missing."""

    points: list[Point]
    failures: dict[str, str] = field(default_factory=dict)

    @property
    def runs(self) -> list[str]:
        """The names of the runs."""
        return list(dict.fromkeys(point.run for point in self.points))

    @property
    def measures(self) -> list[str]:
        """What was measured of every one."""
        return list(self.points[-1].report.measurements)

    def of(self, run: str) -> list[Point]:
        """The points of one run."""
        return [point for point in self.points if point.run == run]

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each number, for a table or a data frame."""
        return [
            {"run": point.run, "checkpoint": point.name, "step": point.step, **row}
            for point in self.points
            for row in point.report.rows()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: what a page draws, without the parts of numbers."""
        return {
            "measures": self.measures,
            "runs": self.runs,
            "points": [
                {
                    "run": point.run,
                    "name": point.name,
                    "step": point.step,
                    "loss": point.report.provenance.loss_value,
                    "fingerprint": point.report.provenance.fingerprint,
                    "values": {
                        request: _plain(found)
                        for request, found in point.report.measurements.items()
                    },
                }
                for point in self.points
            ],
            "failures": self.failures,
        }

    def report(self) -> Report:
        """The last checkpoint's report with the series: it has the page of all."""
        return self.points[-1].report.with_extras(series=self.to_dict())

    def whole(self) -> dict[str, Any]:
        """What the page is drawn from."""
        return self.report().to_dict()

    def sentence(self) -> str:
        """What was measured, on what and with what, as a paper says it."""
        last = self.points[-1].report
        measured = f"{last.provenance.sentence()} {measured_with(last)}"
        return f"{self._count()}, the last of which is described. {measured}"

    def paper_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The first and the last checkpoint of each run."""
        cells = [
            (request, *named, *(one.report[request].quoted for one in ends))
            for request, named, ends in self._ends()
        ]
        return ("Measure", *self._run_column, "First", "Last"), cells

    def __str__(self) -> str:
        facts = self.points[-1].report.provenance
        head = (
            f"{self._count()}: {facts.model}, "
            f"{facts.parameters} parameters, {facts.samples} samples, {facts.loss}"
        )
        missing = [f"{name}: {reason}" for name, reason in self.failures.items()]
        return "\n".join([head, table(self._head, self._cells()), *missing])

    def _repr_html_(self) -> str:
        return html_table(self._head, self._cells(), "; ".join(self.failures.values()))

    def _count(self) -> str:
        return checkpoints_in_words([point.step for point in self.points])

    @property
    def _run_column(self) -> tuple[str, ...]:
        return () if self.runs == [""] else ("run",)

    @property
    def _head(self) -> tuple[str, ...]:
        return ("measure", *self._run_column, "first", "last", "course")

    def _ends(self) -> list[tuple[str, tuple[str, ...], tuple[Point, Point]]]:
        """Each measure of each run, the run's name, its first and its last checkpoint."""
        return [
            (request, (run,) if run else (), (self.of(run)[0], self.of(run)[-1]))
            for request in self.measures
            for run in self.runs
        ]

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                request,
                *named,
                *(_short(one.report[request]) for one in ends),
                _course([p.report[request] for p in self.of(ends[0].run)]),
            )
            for request, named, ends in self._ends()
        ]


def _plain(found: Measurement) -> dict[str, Any]:
    return {
        "value": found.value,
        "uncertainty": found.two_sided,
        "data_uncertainty": found.data_uncertainty,
        "lower_bound": found.is_lower_bound,
        "status": found.status.name,
        "message": found.message,
        "seconds": found.cost.seconds,
    }


def _short(found: Measurement) -> str:
    """A number in a narrow column."""
    if found.value is None:
        return found.status.word
    bound = "≥ " if found.is_lower_bound else ""
    error = "" if found.two_sided is None else f" ± {found.two_sided:.1g}"
    return f"{bound}{found.value:.4g}{error}"


def _course(found: Sequence[Measurement]) -> str:
    """A curve in a line of text, and how many of its numbers can be trusted if not all."""
    values = [one.value if one.status.trusted else None for one in found]
    trusted = sum(value is not None for value in values)
    note = "" if trusted == len(values) else f" {trusted} of {len(values)} trusted"
    return sparkline(values) + note


def sparkline(values: Sequence[float | None]) -> str:
    """A curve in a line of text; where there is nothing there is a dot.

    >>> sparkline([1.0, 2.0, None, 8.0])
    '▁▂·█'
    """
    size = min(len(values), WIDEST)
    bounds = [round(i * len(values) / size) for i in range(size + 1)]
    groups = [values[i:j] for i, j in pairwise(bounds)]
    known = [[one for one in group if one is not None] for group in groups]
    means = [sum(one) / len(one) if one else None for one in known]
    finite = [one for one in means if one is not None]
    if not finite:
        return "·" * size
    low, high = min(finite), max(finite)
    logarithmic = low > 0 and high / low > WIDE
    scaled = math.log if logarithmic else float
    bottom, reach = scaled(low), scaled(high) - scaled(low)

    def mark(value: float) -> str:
        height = (scaled(value) - bottom) / reach if reach else 0.0
        return MARKS[round(height * (len(MARKS) - 1))]

    return "".join("·" if one is None else mark(one) for one in means)
