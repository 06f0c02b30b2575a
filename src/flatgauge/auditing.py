"""The audit: move along the network's own symmetries, measure again, report the drift."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from flatgauge.adversary import Sharpened, sharpened
from flatgauge.errors import FlatgaugeError, SymmetryError
from flatgauge.exports import Tabular
from flatgauge.judging import AuditRow, Case, judge, ratio_of
from flatgauge.measures.registry import find_measure
from flatgauge.objective import Objective
from flatgauge.progress import Progress
from flatgauge.requests import asked_for
from flatgauge.results import Measurement, Report
from flatgauge.run import measure
from flatgauge.tables import html_table, table
from flatgauge.twins import Family, allowed_rounding, other_families, rescalings
from flatgauge.vocabulary import Kind, Verdict, kind_label

# By how much measures may move where outputs of exact twins do, and the most of it.
AMPLIFIED, COARSEST = 1e4, 1e-3
# Factors of the entries of one tensor that are the same up to rounding.
SAME_FACTOR = 1e-4
NO_SCALING = (
    "output-scale was left out: no tensors were found that multiply all scores by one "
    "factor."
)
LEFT_OUT = "no twin was made sharper on purpose, since sharpen_by= is None"


@dataclass(frozen=True, repr=False)
class Audit(Tabular):
    """What moved and what did not, on this very network.

    `base` is what was measured before anything moved. `function_change` is the largest
    relative change of the outputs, by kind: rounding for symmetries of the function, and
    what it is for output scalings. `sharpened` is the twin that was made sharper on
    purpose; where there is none, `untried` says why, and what was not seen to move might.
    `left_out` says which kinds have no twins here, and why.
    """

    base: Report
    audit_rows: list[AuditRow]
    function_change: dict[str, float]
    sharpened: dict[str, Any] | None = None
    untried: str = ""
    left_out: list[str] = field(default_factory=list)

    @property
    def report(self) -> Report:
        """The base measurements with the audit: what its page is drawn from."""
        return self.base.with_extras(audit=self.to_dict())

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each measure and kind."""
        return [asdict(row) for row in self.audit_rows]

    @property
    def violations(self) -> list[AuditRow]:
        """Claims that did not hold: bugs, please report them."""
        return [row for row in self.audit_rows if row.verdict == Verdict.VIOLATED]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {
            "rows": self.rows(),
            "function_change": self.function_change,
            "sharpened": self.sharpened,
            "untried": self.untried,
            "left_out": self.left_out,
        }

    def whole(self) -> dict[str, Any]:
        """What the page is drawn from."""
        return self.report.to_dict()

    def sentence(self) -> str:
        """What was moved, on what and with what, as a paper says it."""
        return (
            "How far each measure moves where the parameters change and the predictions do "
            f"not. {self.base.sentence()}"
        )

    def paper_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """A verdict for each measure and kind of symmetry."""
        return ("Measure", "Symmetry", "Verdict"), self._cells()

    def __str__(self) -> str:
        return "\n".join([table(self._head, self._cells()), *self._notes()])

    def _repr_html_(self) -> str:
        return html_table(self._head, self._cells(), " ".join(self._notes()))

    @property
    def _head(self) -> tuple[str, ...]:
        return ("measure", "symmetry", "verdict")

    def _cells(self) -> list[tuple[str, ...]]:
        return [(row.measure, row.label, row.text) for row in self.audit_rows]

    def _notes(self) -> list[str]:
        return [self._twin(), *self.left_out]

    def _twin(self) -> str:
        if self.sharpened is None:
            return f"Random elements alone were tried: {self.untried}."
        return (
            f"The same function, ×{self.sharpened['ratio']:.3g} sharper by "
            f"hessian-spectral-norm (outputs changed by "
            f"{self.sharpened['output_change']:.1e})."
        )


def audit(
    objective: Objective,
    *requests: str | Sequence[str],
    elements: int = 3,
    spread: float = 0.5,
    seed: int = 0,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    sharpen_by: float | None = 1e3,
    progress: Progress | None = None,
) -> Audit:
    """Check on this network which numbers can be trusted.

    Everything is measured again on twins that compute the same function: at random
    elements of each kind of symmetry, and on one that is made as much sharper as asked
    for, since random elements miss what the worst one does.

    Args:
        objective: model, data, loss and the point.
        requests: measures, as for `measure`; the default set if none is given.
        elements: random elements of each kind of symmetry.
        spread: the standard deviation of their log-scales.
        seed: for measures and elements.
        options: options by measure name.
        sharpen_by: how many times sharper the Hessian of the twin made on purpose is;
            None leaves it out, and the audit then says so.
        progress: called with (what, index, count) as the work goes on.

    Returns:
        An `Audit`; its `report` holds the base measurements.
    """
    asked = asked_for(requests)
    objective = objective.whole()
    known, left_out = _families(objective)
    partly = {family.kind for family in known if not family.complete}
    moved = [
        family.twin(seed + index, spread)
        for family in known
        for index in range(elements)
    ]
    count = len(moved) + 1 + (sharpen_by is not None)

    def run(place: Objective, label: str, index: int) -> Report:
        if progress is not None:
            progress(label, index, count)
        return measure(place, *asked, options=options, seed=seed)

    base = run(objective, "base", 0)
    drift: dict[tuple[str, str, bool], list[Measurement]] = defaultdict(list)
    change: dict[str, float] = defaultdict(float)
    missed: dict[tuple[str, bool], float] = {}
    for index, twin in enumerate(moved):
        label = kind_label(twin.kind, twin.exact)
        change[label] = max(change[label], twin.change)
        if twin.exact and not twin.holds:
            worst = missed.get((twin.kind, twin.exact), 0.0)
            missed[twin.kind, twin.exact] = max(worst, twin.miss)
        report = run(twin.objective, label, index + 1)
        for request, found in report.measurements.items():
            drift[request, twin.kind, twin.exact].append(found)
    # What rounds its outputs more coarsely than its parameters rounds its measures, too.
    same = [
        twin
        for twin in moved
        if twin.exact and twin.holds and not twin.kind.startswith("output")
    ]
    coarse = max((twin.change for twin in same), default=0.0)
    tolerance = _tolerance(base, coarse)
    rows = [
        judge(
            Case(
                request, kind, exact, kind in partly, missed=missed.get((kind, exact))
            ),
            base[request],
            found,
            tolerance,
        )
        for (request, kind, exact), found in drift.items()
    ]
    twin, untried = None, LEFT_OUT
    if sharpen_by is not None:
        again = partial(run, label="sharpened twin", index=count - 1)
        try:
            found = sharpened(objective, sharpen_by, seed=seed)
        except FlatgaugeError as reason:
            untried = str(reason).rstrip(".")
        else:
            untried, report = "", again(found.objective)
            twin = _described(found, sharpen_by, base, report)
            kind = _kind(objective, found.objective)
            tolerance = _tolerance(base, max(coarse, found.output_change))
            off = found.output_change > allowed_rounding(objective)
            missed_by = found.output_change if off else None
            rows += [
                judge(
                    Case(request, kind, True, False, True, missed_by),
                    base[request],
                    [one],
                    tolerance,
                )
                for request, one in report.measurements.items()
            ]
    rows.sort(
        key=lambda r: (asked.index(r.measure), r.kind, not r.exact, r.adversarial)
    )
    return Audit(base, rows, dict(change), twin, untried, left_out)


def _families(objective: Objective) -> tuple[list[Family], list[str]]:
    """The families that can be had, and which cannot, with the reason."""
    found, left_out = other_families(objective), []
    if objective.loss.classification and Kind.OUTPUT_SCALE not in {
        family.kind for family in found
    }:
        left_out.append(NO_SCALING)
    try:
        found = [*rescalings(objective), *found]
    except SymmetryError as reason:
        left_out.append(f"Rescalings were left out: {reason}")
    return found, left_out


def _tolerance(base: Report, coarse: float) -> float:
    """The relative drift that rounding makes, where outputs of twins differ so much."""
    return max(base.provenance.rounding, min(AMPLIFIED * coarse, COARSEST))


def _kind(objective: Objective, twin: Objective) -> Kind:
    """Whether a rescaled twin has whole tensors rescaled, or parts of them."""
    for name, tensor in objective.parameters.items():
        there = tensor != 0
        ratios = twin.parameters[name][there] / tensor[there]
        if ratios.numel() and float(ratios.max()) > (1 + SAME_FACTOR) * float(
            ratios.min()
        ):
            return Kind.NODE_RESCALE
    return Kind.LAYER_RESCALE


def _described(
    found: Sharpened, factor: float, base: Report, report: Report
) -> dict[str, Any]:
    """The adversarial twin, and what every measure says of it."""
    ratios = {}
    for request, one in report.measurements.items():
        if base[request].value is not None and one.value is not None:
            logarithmic = find_measure(one.measure).logarithmic
            ratio = ratio_of(base[request].value or 0.0, one.value, logarithmic)
            ratios[request] = ratio if math.isfinite(ratio) else None
    return {
        "factor": factor,
        "ratio": found.ratio,
        "output_change": found.output_change,
        "before": found.before,
        "after": found.after,
        "ratios": ratios,
    }
