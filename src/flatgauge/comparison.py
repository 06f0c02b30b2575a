"""Checkpoints side by side, with error bars and with what to believe."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from flatgauge.alike import Unlike, differences, in_common
from flatgauge.errors import OptionError, UnlikeWarning
from flatgauge.exports import Tabular
from flatgauge.measures.registry import claims_of, find_measure
from flatgauge.objective import Objective
from flatgauge.progress import Progress
from flatgauge.requests import asked_for
from flatgauge.results import Measurement, Report, measured_with
from flatgauge.run import measure
from flatgauge.tables import format_value, html_table, table
from flatgauge.vocabulary import Kind, Status

# Differences beyond this many combined error bars count as real.
ERROR_BARS = 2
# So many checkpoints are counted, fewer are named.
LISTED = 4
# Why no checkpoint is named.
WITHIN, UNLIKE, UNTRUSTED = "within error", "not measured alike", "not all trusted"


@dataclass(frozen=True)
class ComparisonRow:
    """One measure over all checkpoints.

    `flatter` names the flattest checkpoint, where its distance from the next one is
    larger than the error bars and rounding, which exact values have, too (`significant`);
    else it is None, and `untold` says why: within error, not measured alike, or not all
    can be trusted. `invariant_to` lists the claims. Lower bounds have no uncertainty
    here: they differ if they do by more than what their own climbs do.
    """

    measure: str
    values: dict[str, float | None]
    uncertainties: dict[str, float | None]
    statuses: dict[str, str]
    flatter: str | None
    significant: bool
    invariant_to: list[str]
    untold: str = ""

    def shown(self, name: str) -> str:
        """One checkpoint's number, or why there is none."""
        if self.values[name] is None:
            return Status[self.statuses[name]].word
        return format_value(self.values[name], self.uncertainties[name])


@dataclass(frozen=True, repr=False)
class Comparison(Tabular):
    """Several checkpoints under the same measures.

    `text` says what was compared, and `unlike` in what they were not measured alike.
    """

    names: list[str]
    comparison_rows: list[ComparisonRow]
    disagreements: list[dict[str, Any]]
    reports: dict[str, Report]
    text: str = ""
    unlike: list[Unlike] = field(default_factory=list)

    def rows(self) -> list[dict[str, Any]]:
        """One row for each measure and checkpoint, for a table or a data frame."""
        return [
            {
                "measure": row.measure,
                "checkpoint": name,
                "value": row.values[name],
                "uncertainty": row.uncertainties[name],
                "status": row.statuses[name],
                "flatter": row.flatter,
                "untold": row.untold,
            }
            for row in self.comparison_rows
            for name in self.names
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "names": self.names,
            "text": self.text,
            "unlike": [asdict(one) for one in self.unlike],
            "rows": [asdict(row) for row in self.comparison_rows],
            "disagreements": self.disagreements,
            "reports": {name: one.to_dict() for name, one in self.reports.items()},
        }

    def report(self) -> Report:
        """The first checkpoint's report with the comparison: it has the page of all."""
        return self.reports[self.names[0]].with_extras(comparison=self.to_dict())

    def whole(self) -> dict[str, Any]:
        """What the page is drawn from."""
        return self.report().to_dict()

    def sentence(self) -> str:
        """What was compared, on what and with what, as a paper says it."""
        first = self.reports[self.names[0]]
        every = [f"'{n}', {one.provenance.subject}" for n, one in self.reports.items()]
        whose = "; ".join(every) if len(every) < LISTED else f"{len(every)} checkpoints"
        measured = f"{first.provenance.sentence(whose)} {measured_with(first)}"
        return " ".join([*(one.text for one in self.unlike), self.text, measured])

    def paper_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """A column for each checkpoint, and the flattest where that is known."""
        cells = [
            (
                row.measure,
                *(self.reports[name][row.measure].quoted for name in self.names),
                row.flatter or "",
            )
            for row in self.comparison_rows
        ]
        return ("Measure", *self.names, "Flatter"), cells

    def __str__(self) -> str:
        return "\n".join([table(self._head, self._cells()), *self._notes()])

    def _repr_html_(self) -> str:
        return html_table(self._head, self._cells(), " ".join(self._notes()))

    def _notes(self) -> list[str]:
        unlike = [one.text for one in self.unlike]
        return [*unlike, *(str(one["text"]) for one in self.disagreements), self.text]

    @property
    def _head(self) -> tuple[str, ...]:
        return ("measure", *self.names, "flatter")

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (
                row.measure,
                *(row.shown(name) for name in self.names),
                self._verdict(row),
            )
            for row in self.comparison_rows
        ]

    def _verdict(self, row: ComparisonRow) -> str:
        return row.flatter or f"- ({row.untold})"


def compare(
    objectives: Mapping[str, Objective] | Sequence[Objective],
    *requests: str | Sequence[str],
    options: Mapping[str, Mapping[str, Any]] | None = None,
    seed: int = 0,
    progress: Progress | None = None,
    resamples: int = 0,
) -> Comparison:
    """Measure several checkpoints alike, and say which differences are real.

    A difference is real where it is more than two combined error bars and what rounding
    may make of either value. Where data, loss, mode or coupled batches differ, an
    `UnlikeWarning` says so, and no order is told; other precision is told, too.

    Args:
        objectives: at least two, by name; those of a list are called 1, 2, ...
        requests: measures, as for `measure`; the default set if none is given.
        options: options by measure name.
        seed: for every random draw, the same for all.
        progress: called with (name, index, count) before each checkpoint.
        resamples: splits of the data into halves, as for `measure`: the page then says
            which differences are larger than the standard errors over the samples, too.
    """
    if not isinstance(objectives, Mapping):
        objectives = {str(place): one for place, one in enumerate(objectives, 1)}
    if len(objectives) < 2:
        raise OptionError(
            "a comparison needs at least two checkpoints: give two names."
        )
    names = list(objectives)
    for name, objective in objectives.items():
        if not isinstance(objective, Objective):
            raise OptionError(
                f"'{name}' is {type(objective).__name__}: give an Objective, which is a "
                "model with its data and its loss."
            )
    asked = asked_for(requests)
    reports = {}
    for index, (name, objective) in enumerate(objectives.items()):
        if progress is not None:
            progress(name, index, len(names))
        reports[name] = measure(
            objective, *asked, options=options, seed=seed, resamples=resamples
        )
    return compared(reports)


def compared(reports: dict[str, Report]) -> Comparison:
    """Reports that were made before, side by side; see `compare`.

    What not all of them have measured is left out.
    """
    names = list(reports)
    unlike = differences({name: one.provenance for name, one in reports.items()})
    for one in unlike:
        warnings.warn(one.text, UnlikeWarning, stacklevel=3)
    alike = not any(one.decisive for one in unlike)
    asked = [
        request
        for request in reports[names[0]]
        if all(request in one.measurements for one in reports.values())
    ]
    rows = [
        _row(request, {name: reports[name][request] for name in names}, alike)
        for request in asked
    ]
    text = _in_words(reports, len(asked))
    return Comparison(names, rows, _disagreements(rows), reports, text, unlike)


def _in_words(reports: Mapping[str, Report], measures: int) -> str:
    """What was compared, and what counts as a difference."""
    facts = {name: one.provenance for name, one in reports.items()}
    rounding = max(one.rounding for one in facts.values())
    shown = ", ".join(f"'{name}'" for name in facts)
    what = shown if len(facts) < LISTED else f"{len(facts)} checkpoints"
    counted = "1 measure" if measures == 1 else f"{measures} measures"
    return (
        f"Compared: {what} by {counted} on {in_common(facts)}. A difference "
        f"counts where it is larger than {ERROR_BARS} combined errors of the computation "
        f"and rounding ({rounding:.0e} of the value); other data would give other numbers."
    )


def _row(
    request: str, found: dict[str, Measurement], alike: bool = True
) -> ComparisonRow:
    first = next(iter(found.values()))
    info = find_measure(first.measure)
    trusted = {
        name: one.value
        for name, one in found.items()
        if one.value is not None and one.status.trusted
    }
    sign = 1 if info.flatter == "smaller" else -1
    order = sorted(trusted, key=lambda name: sign * trusted[name])
    # A surrogate may suit one checkpoint and not the other.
    if not alike or len({one.loss for one in found.values()}) > 1:
        untold = UNLIKE
    elif len(order) < len(found):
        untold = UNTRUSTED
    elif not _differ(found[order[0]], found[order[1]], info.logarithmic):
        untold = WITHIN
    else:
        untold = ""
    return ComparisonRow(
        measure=request,
        values={name: one.value for name, one in found.items()},
        uncertainties={name: one.two_sided for name, one in found.items()},
        statuses={name: one.status.name for name, one in found.items()},
        flatter=None if untold else order[0],
        significant=not untold,
        invariant_to=sorted(claims_of(first)),
        untold=untold,
    )


def _differ(one: Measurement, other: Measurement, logarithmic: bool) -> bool:
    """Whether two values are farther apart than their errors and their rounding."""
    assert one.value is not None
    assert other.value is not None
    rounding = sum(
        number.provenance.rounding * max(number.size, 1.0 if logarithmic else 0.0)
        for number in (one, other)
    )
    bars = math.hypot(one.error_bar, other.error_bar)
    return abs(one.value - other.value) > ERROR_BARS * bars + rounding


def _disagreements(rows: list[ComparisonRow]) -> list[dict[str, Any]]:
    """The camps: the measures that name different checkpoints the flattest."""
    camps: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        if row.flatter is not None:
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
