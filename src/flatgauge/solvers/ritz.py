"""Extreme Ritz pairs: when a Lanczos run may stop, and what it then knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.deadline import OutOfTime
from flatgauge.results import Status
from flatgauge.solvers.certificate import distance_above
from flatgauge.solvers.krylov import Lanczos, random_start

# Where a residual of so many times what is enough is expected, more steps will follow.
FAR = 4.0


@dataclass(frozen=True)
class End:
    """One extreme Ritz pair; for the smallest eigenvalue, of the negated operator.

    Attributes:
        value: the largest eigenvalue of sign * T.
        coefficients: of the Ritz vector in the Krylov basis.
        residual: ||A v - theta v||, as the recurrence gives it.
        allowed: the residual that the tolerance allows.
        floor: the rounding error of a product.
        finest: the same with all the bits of the dtype, where no step helps.
    """

    value: float
    coefficients: np.ndarray
    residual: float
    allowed: float
    floor: float
    finest: float

    @property
    def enough(self) -> float:
        """The residual below which steps are not asked for, or spent on rounding."""
        return max(self.allowed, self.finest)

    @property
    def settled(self) -> bool:
        """Whether no more steps are needed."""
        return self.residual <= self.enough

    @property
    def reached(self) -> bool:
        """Whether the tolerance was met.

        A value that is zero up to rounding has no relative residual to be judged by.
        """
        zero = abs(self.value) <= self.floor and self.settled
        return zero or max(self.residual, self.floor) <= self.allowed

    def expected_after(self, before: float) -> float:
        """The next step's residual, if it shrinks as it did since `before`."""
        return self.residual * min(1.0, self.residual / max(before, 1e-300))


def run_lanczos(
    operator: SymmetricOperator,
    signs: Sequence[int],
    tol: float,
    max_steps: int,
    random: torch.Generator,
    deflated: Tensor | None = None,
    scale: float = 0.0,
    least_steps: int = 1,
) -> Lanczos:
    """Step until the ends named by `signs` (1: largest, -1: smallest) are settled.

    At least `least_steps` are taken, unless an invariant subspace is found before, or
    time runs out after the first.
    """
    run = Lanczos(operator, random_start(operator, random), deflated, scale)
    far, before = True, [0.0] * len(signs)
    while run.steps < max_steps and not run.exhausted:
        number = run.steps + 1
        try:
            run.step(ahead=number < max_steps and (far or number < least_steps))
        except OutOfTime as stop:
            if not run.steps:
                raise
            run.stopped = stop
            break
        deadline.usable()
        if number + 1 < least_steps:
            continue
        ends = [extreme(run, sign, tol) for sign in signs]
        if deadline.watched():
            error = distance_beyond(run, ends[0], signs[0])
            deadline.tell(signs[0] * ends[0].value, error, max_steps)
        if number >= least_steps and all(end.settled for end in ends):
            break
        pairs = zip(ends, before, strict=True)
        far = any(end.expected_after(last) > FAR * end.enough for end, last in pairs)
        before = [end.residual for end in ends]
    return run


def spectral_radius(run: Lanczos) -> float:
    """The largest magnitude of a Ritz value, or what was known before the run."""
    return max(run.scale, float(np.abs(run.ritz()[0]).max()))


def extreme(run: Lanczos, sign: int, tol: float) -> End:
    """The Ritz pair at one end, judged relative to |theta| or to the radius.

    The largest is judged relative to itself; the smallest, which may well be 0,
    relative to the spectral radius.
    """
    values, vectors = run.ritz()
    index = -1 if sign > 0 else 0
    value = sign * float(values[index])
    radius = max(run.scale, float(np.abs(values).max()))
    return End(
        value=value,
        coefficients=vectors[:, index],
        residual=run.betas[-1] * abs(float(vectors[-1, index])),
        allowed=tol * (abs(value) if sign > 0 else radius),
        floor=run.rounding * radius,
        finest=run.finest * radius,
    )


def distance_beyond(run: Lanczos, end: End, sign: int) -> float:
    """How far the eigenvalue at this end can lie beyond its Ritz value."""
    alphas = [sign * alpha for alpha in run.alphas]
    return distance_above(alphas, run.betas, end.value, run.dimension, end.floor)


def verdict(
    ends: Sequence[End],
    tol: float,
    max_steps: int,
    runs: Sequence[Lanczos] = (),
) -> tuple[Status, str]:
    """The status of a set of Ritz pairs, and one sentence about it.

    `runs` are asked whether time ended them.
    """
    missed = [end for end in ends if not end.reached]
    if not missed:
        return Status.CONVERGED, f"Every residual met the tolerance {tol:g}."
    worst = max(missed, key=lambda end: end.residual / max(end.allowed, 1e-300))
    if worst.settled:
        return Status.NOT_CONVERGED, (
            f"The tolerance {tol:g} is below the rounding error of the products, "
            f"{worst.floor:.3g}: use float64 or precision='ieee', or raise tol."
        )
    stops = [(run.stopped, run.steps) for run in runs if run.stopped is not None]
    if stops:
        stop, steps = stops[0]
        return Status.NOT_CONVERGED, stop.after_products(steps)
    return Status.NOT_CONVERGED, (
        f"A residual of {worst.residual:.3g} was left after max_steps={max_steps} "
        f"products where {worst.allowed:.3g} was asked for: raise max_steps or tol."
    )
