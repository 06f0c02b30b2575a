"""Diagonals as measures use them: exact, or with independent replicates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flatgauge.curvature.diagonal import Diagonal
from flatgauge.results import Status
from flatgauge.solvers.student import standard_error
from flatgauge.vectors import Params, add, scale


@dataclass(frozen=True)
class Curvature:
    """A diagonal, and independent replicates of it where it is a random estimate.

    `rounding` is what a loss's own rounding can amount to, where that shows.
    """

    mean: Params
    replicates: list[Params]
    method: str
    status: Status
    message: str
    rounding: Params | None = None

    def evaluate(
        self, function: Callable[[Params], float]
    ) -> tuple[float, float | None]:
        """A function of the diagonal, and its error (None if it is exact)."""
        value = function(self.mean)
        if not self.replicates and self.rounding is not None:
            ends = [add(self.mean, self.rounding, sign) for sign in (1.0, -1.0)]
            return value, max(abs(function(end) - value) for end in ends)
        if not self.replicates:
            return value, None
        return value, float(standard_error([function(r) for r in self.replicates]))


def combined(found: list[Diagonal]) -> Curvature:
    """The mean of independent estimates, or the one exact diagonal."""
    mean = found[0].values
    for one in found[1:]:
        mean = add(mean, one.values)
    replicates = [one.values for one in found] if len(found) > 1 else []
    first = found[0]
    mean = scale(mean, 1 / len(found))
    rounding = first.uncertainty if first.exact else None
    return Curvature(
        mean, replicates, first.method, first.status, first.message, rounding
    )
