"""What an audit says of one measure under one kind of symmetry."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flatgauge.measures.registry import claims_of, find_measure
from flatgauge.results import Measurement
from flatgauge.vocabulary import Status, Verdict, kind_label

# Combined standard errors that a difference of random estimates may span.
STANDARD_ERRORS = 4
# Where invariance to a kind is not claimed, a measure "moves" if it changes by more.
VISIBLE = 0.01
# A value that did not converge has moved if it did by more than this and its error.
PLAIN = 1.0


@dataclass(frozen=True)
class AuditRow:
    """One measure under one kind of symmetry.

    `ratio_min` and `ratio_max` span value(twin) / value over the elements tried, for a
    logarithm that of what it is a logarithm of; they are None where a value did not apply
    or failed. `verdict` is "holds", "moves", "stays" (not claimed, and it did not move),
    "claim violated" or "not judged". `change` is how far it moved, such as "×14", or
    "+2.6" for a logarithm, empty if it did not. `adversarial` says that the twin is not
    a random one, but the one that was made sharper on purpose.
    """

    measure: str
    kind: str
    claimed: bool
    exact: bool
    ratio_min: float | None
    ratio_max: float | None
    verdict: str
    text: str
    change: str = ""
    adversarial: bool = False

    @property
    def label(self) -> str:
        """The kind as a table names it."""
        return kind_label(self.kind, self.exact, self.adversarial)


@dataclass(frozen=True)
class Case:
    """What a row is about.

    `partly` where there may be more of its kind; `missed` is how far the outputs of a
    twin are from what its kind says, where that is more than rounding.
    """

    request: str
    kind: str
    exact: bool
    partly: bool
    adversarial: bool = False
    missed: float | None = None


def judge(
    case: Case, base: Measurement, moved: list[Measurement], tolerance: float
) -> AuditRow:
    """The verdict on a measure's values at twins.

    Args:
        case: the measure and the kind of symmetry.
        base: its value before anything moved.
        moved: its values at the twins.
        tolerance: the relative drift that rounding makes.
    """
    logarithmic = find_measure(base.measure).logarithmic
    claimed = case.exact and case.kind in claims_of(base)
    doubtful = next(
        (one for one in [base, *moved] if not one.status.trusted or one.value is None),
        None,
    )

    def row(
        verdict: Verdict, text: str, change: str = "", ratios: Sequence[float] = ()
    ) -> AuditRow:
        ends = (min(ratios), max(ratios)) if ratios else (math.nan, math.nan)
        low, high = (one if math.isfinite(one) else None for one in ends)
        what = case.request, case.kind, claimed, case.exact
        return AuditRow(*what, low, high, verdict, text, change, case.adversarial)

    if case.missed is not None:
        reason = f"the twin's outputs are off by {case.missed:.0e}"
        return row(Verdict.NOT_JUDGED, f"not judged ({reason})")
    values = [one.value for one in moved if one.value is not None]
    if base.value is None or len(values) < len(moved):
        assert doubtful is not None
        return row(Verdict.NOT_JUDGED, f"not judged ({doubtful.status.word})")
    ratios = [ratio_of(base.value, value, logarithmic) for value in values]
    drifted = any(
        abs((one.value or 0.0) - base.value) > _allowance(base, one, tolerance)
        for one in moved
    )
    factor = max(max(ratios), 1 / min(ratios)) if min(ratios) > 0 else math.inf
    change = _change(base.value, values, factor, logarithmic)
    if doubtful is not None:
        known = all(one.uncertainty is not None for one in [base, *moved])
        if claimed or not (drifted and known and factor > 1 + PLAIN):
            return row(Verdict.NOT_JUDGED, f"not judged ({doubtful.status.word})")
        text = f"moves {change} (not claimed; {doubtful.status.word})"
        return row(Verdict.MOVES, text, change, ratios)
    if claimed and drifted:
        text = f"claim violated ({change}): please report this"
        return row(Verdict.VIOLATED, text, change, ratios)
    if claimed:
        text = "holds on those found; there may be more" if case.partly else "holds"
        return row(Verdict.HOLDS, text, "", ratios)
    if drifted and factor > 1 + VISIBLE:
        reason = "not claimed" if case.exact else "holds only up to eps"
        return row(Verdict.MOVES, f"moves {change} ({reason})", change, ratios)
    tried = "on this twin" if case.adversarial else "in those tried"
    text = f"no move beyond its error {tried} (not claimed)"
    return row(Verdict.STAYS, text, "", ratios)


def _change(
    base: float, values: Sequence[float], factor: float, logarithmic: bool
) -> str:
    """How far a measure moved: a factor, or the difference of logarithms."""
    if logarithmic:
        return f"{max((value - base for value in values), key=abs):+.3g}"
    return f"×{factor:.3g}" if math.isfinite(factor) else "by a change of sign"


def ratio_of(base: float, value: float, logarithmic: bool) -> float:
    """Value / base; of logarithms, that of what they are logarithms of."""
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
