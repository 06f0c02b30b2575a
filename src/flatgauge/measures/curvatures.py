"""Diagonals as measures use them: exact, or with independent replicates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import torch

from flatgauge.deadline import OutOfTime
from flatgauge.diagonals.diagonal import Diagonal
from flatgauge.results import Status
from flatgauge.solvers.student import standard_error
from flatgauge.vectors import Params, add, dealt_like, scale

# The relative rounding that "exact" takes for granted.
SHOWN = {torch.float64: 1e-8, torch.float32: 1e-4}


@dataclass(frozen=True)
class Curvature:
    """A diagonal, and independent replicates of it where it is a random estimate.

    `rounding` is what an exact diagonal may be off by: a loss's own rounding, or that of
    products; it is an error of a function where it shows in its value.
    """

    mean: Params
    replicates: list[Params]
    method: str
    status: Status
    message: str
    rounding: Params | None = None

    def cut(self, space: Params) -> Curvature:
        """The same, sharded as a space is."""
        rounding = self.rounding
        return replace(
            self,
            mean=dealt_like(self.mean, space),
            replicates=[dealt_like(one, space) for one in self.replicates],
            rounding=None if rounding is None else dealt_like(rounding, space),
        )

    def evaluate(
        self, function: Callable[[Params], float]
    ) -> tuple[float, float | None]:
        """A function of the diagonal, and its error (None if it is exact)."""
        return self.evaluate_together(lambda points: list(map(function, points)))

    def evaluate_together(
        self, functions: Callable[[Sequence[Params]], list[float]]
    ) -> tuple[float, float | None]:
        """The same, for a function that several diagonals are handed to at once.

        First it is asked for its value at the mean, alone.
        """
        (value,) = functions([self.mean])
        if not self.replicates and self.rounding is not None:
            ends = [add(self.mean, self.rounding, sign) for sign in (1.0, -1.0)]
            error = max(abs(end - value) for end in functions(ends))
            return value, shown(error, value, next(iter(self.mean.values())).dtype)
        if not self.replicates:
            return value, None
        return value, float(standard_error(functions(self.replicates)))


def shown(error: float, value: float, dtype: torch.dtype) -> float | None:
    """An error that is more than an exact number of this size always has, else None."""
    return error if error > SHOWN[dtype] * abs(value) else None


def combined(found: list[Diagonal], stop: OutOfTime | None = None) -> Curvature:
    """The mean of independent estimates, or the one exact diagonal.

    Where time ended the estimates, there must be two for an error, or it is raised.
    """
    if stop is not None:
        if len(found) < 2:
            raise stop
        what = f"after {len(found)} estimates of the diagonal, or parts of them"
        return replace(
            combined(found), status=Status.NOT_CONVERGED, message=stop.after(what)
        )
    first, values = found[0], [one.values for one in found]
    mean = scale(reduce(add, values), 1 / len(found))
    replicates = values if len(found) > 1 else []
    rounding = None
    if first.exact:
        known = [one for one in (first.uncertainty, first.rounding) if one is not None]
        rounding = reduce(add, known) if known else None
    return Curvature(
        mean, replicates, first.method, first.status, first.message, rounding
    )
