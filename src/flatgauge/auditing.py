"""The audit: move along the network's own symmetries, measure again, report the drift."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch

from flatgauge.adversary import sharpened
from flatgauge.errors import FlatgaugeError
from flatgauge.measures.registry import find_measure
from flatgauge.objective import Objective
from flatgauge.progress import Progress
from flatgauge.requests import asked_for
from flatgauge.results import Measurement, Report
from flatgauge.run import claims_of, measure
from flatgauge.tables import html_table, table
from flatgauge.twins import families
from flatgauge.vocabulary import Status, Verdict, kind_label

# Relative drift that rounding alone makes between twins, beside the error bars.
ROUNDING = {torch.float64: 1e-9, torch.float32: 1e-3}
# By how much measures may move where outputs of exact twins do, and the most of it.
AMPLIFIED, COARSEST = 1e4, 1e-3
# Combined standard errors that a difference of random estimates may span.
STANDARD_ERRORS = 4
# Where invariance to a kind is not claimed, a measure "moves" if it changes by more.
VISIBLE = 0.01


@dataclass(frozen=True)
class AuditRow:
    """One measure under one kind of symmetry.

    `ratio_min` and `ratio_max` span value(twin) / value over the elements tried; they
    are None where a value did not apply or failed. `verdict` is "holds", "moves", "stays"
    (not claimed, and it did not move), "claim violated" or "not judged".
    """

    measure: str
    kind: str
    claimed: bool
    exact: bool
    ratio_min: float | None
    ratio_max: float | None
    verdict: str
    text: str


@dataclass(frozen=True)
class Audit:
    """What moved and what did not, on this very network.

    `base` is what was measured before anything moved. `function_change` is the largest
    relative change of the outputs, by kind: rounding for symmetries of the function, and
    what it is for output scalings.
    """

    base: Report
    audit_rows: list[AuditRow]
    function_change: dict[str, float]
    sharpened: dict[str, Any] | None = None

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
        }

    def __str__(self) -> str:
        return "\n".join(filter(None, [table(self._head, self._cells()), self._twin()]))

    def _repr_html_(self) -> str:
        return html_table(self._head, self._cells(), self._twin())

    @property
    def _head(self) -> tuple[str, ...]:
        return ("measure", "symmetry", "verdict")

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (row.measure, kind_label(row.kind, row.exact), row.text)
            for row in self.audit_rows
        ]

    def _twin(self) -> str:
        if self.sharpened is None:
            return ""
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

    Args:
        objective: model, data, loss and the point.
        requests: measures, as for `measure`; the default set if none is given.
        elements: random elements of each kind of symmetry.
        spread: the standard deviation of their log-scales.
        seed: for measures and elements.
        options: options by measure name.
        sharpen_by: also build a twin whose Hessian is this many times sharper; None
            leaves that out.
        progress: called with (what, index, count) as the work goes on.

    Returns:
        An `Audit`; its `report` holds the base measurements.
    """
    asked = asked_for(requests)
    known = families(objective)
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
    for index, twin in enumerate(moved):
        label = kind_label(twin.kind, twin.exact)
        change[label] = max(change[label], twin.change)
        report = run(twin.objective, label, index + 1)
        for request, found in report.measurements.items():
            drift[request, twin.kind, twin.exact].append(found)
    # What rounds its outputs more coarsely than its parameters rounds its measures, too.
    same = [twin for twin in moved if twin.exact and not twin.kind.startswith("output")]
    coarse = max((twin.change for twin in same), default=0.0)
    tolerance = max(ROUNDING[objective.dtype], min(AMPLIFIED * coarse, COARSEST))
    rows = [
        _judge(request, kind, exact, base[request], found, tolerance, kind in partly)
        for (request, kind, exact), found in sorted(
            drift.items(), key=lambda item: (asked.index(item[0][0]), item[0][1:])
        )
    ]
    twin = None
    if sharpen_by is not None:
        again = partial(run, label="sharpened twin", index=count - 1)
        twin = _sharpen(objective, sharpen_by, base, again)
    return Audit(base, rows, dict(change), twin)


def _judge(
    request: str,
    kind: str,
    exact: bool,
    base: Measurement,
    moved: list[Measurement],
    tolerance: float,
    partly: bool,
) -> AuditRow:
    logarithmic = find_measure(base.measure).logarithmic
    claimed = exact and kind in claims_of(base)
    doubtful = [
        one.status.word
        for one in [base, *moved]
        if not one.status.trusted or one.value is None
    ]
    if doubtful or base.value is None:
        verdict, text = Verdict.NOT_JUDGED, f"not judged ({doubtful[0]})"
        return AuditRow(request, kind, claimed, exact, None, None, verdict, text)
    ratios = [_ratio(base.value, one.value, logarithmic) for one in moved]
    low, high = min(ratios), max(ratios)
    drifted = any(
        abs((one.value or 0.0) - base.value) > _allowance(base, one, tolerance)
        for one in moved
    )
    factor = max(high, 1 / low) if low > 0 else math.inf
    shown = f"×{factor:.3g}" if math.isfinite(factor) else "by a change of sign"
    if claimed:
        verdict = Verdict.VIOLATED if drifted else Verdict.HOLDS
        text = "holds on those found; there may be more" if partly else "holds"
        text = f"claim violated ({shown}): please report this" if drifted else text
    elif drifted and factor > 1 + VISIBLE:
        reason = "not claimed" if exact else "holds only up to eps"
        verdict, text = Verdict.MOVES, f"moves {shown} ({reason})"
    else:
        verdict, text = Verdict.STAYS, "no move beyond its error (not claimed)"
    low_shown, high_shown = (r if math.isfinite(r) else None for r in (low, high))
    return AuditRow(request, kind, claimed, exact, low_shown, high_shown, verdict, text)


def _ratio(base: float, moved: float | None, logarithmic: bool) -> float:
    value = moved or 0.0
    if logarithmic:
        return math.exp(value - base)
    if base == 0:
        return 1.0 if value == 0 else math.inf
    return value / base


def _allowance(base: Measurement, moved: Measurement, tolerance: float) -> float:
    """What two values may differ by: error bounds add up, standard errors combine."""
    bars = [one.error_bar for one in (base, moved)]
    random = Status.ESTIMATED in (base.status, moved.status)
    spread = STANDARD_ERRORS * math.hypot(*bars) if random else sum(bars)
    return spread + tolerance * abs(base.value or 0.0)


def _sharpen(
    objective: Objective,
    factor: float,
    base: Report,
    run: Callable[[Objective], Report],
) -> dict[str, Any] | None:
    """The adversarial twin, and what every measure says of it."""
    try:
        found = sharpened(objective, factor, seed=base.provenance.seed)
    except FlatgaugeError:
        return None
    ratios = {}
    for request, one in run(found.objective).measurements.items():
        if base[request].value is not None and one.value is not None:
            logarithmic = find_measure(one.measure).logarithmic
            ratio = _ratio(base[request].value or 0.0, one.value, logarithmic)
            ratios[request] = ratio if math.isfinite(ratio) else None
    return {
        "factor": factor,
        "ratio": found.ratio,
        "output_change": found.output_change,
        "before": found.before,
        "after": found.after,
        "ratios": ratios,
    }
