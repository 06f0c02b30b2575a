"""Checkpoints side by side, with error bars and with what to believe."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from flatgauge.errors import OptionError
from flatgauge.measures.registry import find_measure
from flatgauge.objective import Objective
from flatgauge.progress import Progress
from flatgauge.requests import asked_for
from flatgauge.results import Measurement, Report
from flatgauge.run import claims_of, measure
from flatgauge.tables import format_value, html_table, table
from flatgauge.vocabulary import Kind, Status

# Differences beyond this many combined error bars count as real.
ERROR_BARS = 2


@dataclass(frozen=True)
class ComparisonRow:
    """One measure over all checkpoints.

    `flatter` names the flattest checkpoint; `significant` says whether its distance
    from the next one is larger than the error bars; `invariant_to` lists the claims.
    Lower bounds have no uncertainty here: they differ if they do by more than what their
    own climbs do.
    """

    measure: str
    values: dict[str, float | None]
    uncertainties: dict[str, float | None]
    statuses: dict[str, str]
    flatter: str | None
    significant: bool
    invariant_to: list[str]

    def shown(self, name: str) -> str:
        """One checkpoint's number, or why there is none."""
        if self.values[name] is None:
            return Status[self.statuses[name]].word
        return format_value(self.values[name], self.uncertainties[name])


@dataclass(frozen=True)
class Comparison:
    """Several checkpoints under the same measures."""

    names: list[str]
    comparison_rows: list[ComparisonRow]
    disagreements: list[dict[str, Any]]
    reports: dict[str, Report]

    def rows(self) -> list[dict[str, Any]]:
        """One row for each measure."""
        return [asdict(row) for row in self.comparison_rows]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "names": self.names,
            "rows": self.rows(),
            "disagreements": self.disagreements,
            "reports": {name: one.to_dict() for name, one in self.reports.items()},
        }

    def report(self) -> Report:
        """The first checkpoint's report with the comparison: it has the page of all."""
        return self.reports[self.names[0]].with_extras(comparison=self.to_dict())

    def __str__(self) -> str:
        text = table(self._head, self._cells())
        return "\n".join([text, *(str(one["text"]) for one in self.disagreements)])

    def _repr_html_(self) -> str:
        note = " ".join(str(one["text"]) for one in self.disagreements)
        return html_table(self._head, self._cells(), note)

    @property
    def _head(self) -> tuple[str, ...]:
        return ("measure", *self.names, "flatter")

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                row.measure,
                *(row.shown(name) for name in self.names),
                (row.flatter or "-") + ("" if row.significant else " (within error)"),
            )
            for row in self.comparison_rows
        ]


def compare(
    objectives: Mapping[str, Objective],
    *requests: str | Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
) -> Comparison:
    """Measure several checkpoints alike, and say which differences are real.

    Args:
        objectives: at least two, by name.
        requests: measures, as for `measure`; the default set if none is given.
        options: options by measure name.
        seed: for every random draw, the same for all.
        progress: called with (name, index, count) before each checkpoint.
    """
    if len(objectives) < 2:
        raise OptionError(
            "a comparison needs at least two checkpoints: give two names."
        )
    names = list(objectives)
    asked = asked_for(requests)
    reports = {}
    for index, (name, objective) in enumerate(objectives.items()):
        if progress is not None:
            progress(name, index, len(names))
        reports[name] = measure(objective, *asked, options=options, seed=seed)
    rows = [
        _row(request, {name: reports[name][request] for name in names})
        for request in asked
    ]
    return Comparison(names, rows, _disagreements(rows), reports)


def _row(request: str, found: dict[str, Measurement]) -> ComparisonRow:
    first = next(iter(found.values()))
    info = find_measure(first.measure)
    trusted = {
        name: one.value
        for name, one in found.items()
        if one.value is not None and one.status.trusted
    }
    sign = 1 if info.flatter == "smaller" else -1
    order = sorted(trusted, key=lambda name: sign * trusted[name])
    significant = False
    if len(order) > 1:
        best, second = found[order[0]], found[order[1]]
        bars = math.hypot(best.error_bar, second.error_bar)
        gap = abs(trusted[order[0]] - trusted[order[1]])
        significant = gap > ERROR_BARS * bars and gap > 0
    return ComparisonRow(
        measure=request,
        values={name: one.value for name, one in found.items()},
        uncertainties={name: one.two_sided for name, one in found.items()},
        statuses={name: one.status.name for name, one in found.items()},
        flatter=order[0] if len(order) == len(found) else None,
        significant=significant and len(order) == len(found),
        invariant_to=sorted(claims_of(first)),
    )


def _disagreements(rows: list[ComparisonRow]) -> list[dict[str, Any]]:
    """The camps: the measures that name different checkpoints the flattest."""
    camps: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        if row.flatter is not None and row.significant:
            camps.setdefault(row.flatter, []).append(row)
    if len(camps) < 2:
        return []
    return [
        {
            "name": name,
            "measures": [row.measure for row in camp],
            "text": f"'{name}' is flatter by {_listed(camp)}{_weight(camp)}",
        }
        for name, camp in camps.items()
    ]


def _listed(rows: list[ComparisonRow]) -> str:
    return ", ".join(row.measure for row in rows)


def _weight(camp: list[ComparisonRow]) -> str:
    """How much an order says: as much as the invariant measures behind it."""
    invariant = [row for row in camp if Kind.NODE_RESCALE in row.invariant_to]
    if not invariant:
        return (
            ": none of these is unchanged by rescaling nodes, so this order can be turned "
            "round without changing either network's function."
        )
    if len(invariant) == len(camp):
        return ": all of these are unchanged by rescaling nodes."
    return f"; only {_listed(invariant)} cannot be changed by rescaling nodes."
