"""Extreme Ritz pairs: when a Lanczos run may stop, and what it then knows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.deadline import OutOfTime
from flatgauge.results import Status
from flatgauge.solvers.certificate import DELTA, distance_above
from flatgauge.solvers.krylov import Lanczos, random_start

# Error bounds are brought down to this share of the value, if no more than so many
# further steps, or that share of the steps so far, are enough for it.
BOUND = 0.01
EXTRA_STEPS, EXTRA_SHARE = 4, 0.25


@dataclass(frozen=True)
class ExtremePair:
    """One extreme Ritz pair; for the smallest eigenvalue, of the negated operator.

    Attributes:
        value: the largest eigenvalue of sign * T.
        coefficients: of the Ritz vector in the Krylov basis.
        residual: ||A v - theta v||, as the recurrence gives it.
        allowed: the residual that the tolerance allows.
        floor: the rounding error of a product.
        finest: the same with all the bits of the dtype, where no step helps.
        goal: the error bound that a few more steps are spent on.
    """

    value: float
    coefficients: np.ndarray
    residual: float
    allowed: float
    floor: float
    finest: float
    goal: float = math.inf

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


def run_lanczos(
    operator: SymmetricOperator,
    signs: Sequence[int],
    tol: float,
    max_steps: int,
    random: torch.Generator,
    deflated: Tensor | None = None,
    scale: float = 0.0,
    least_steps: int = 1,
    bounded: Sequence[int] = (),
    delta: float = DELTA,
) -> Lanczos:
    """Step until the ends named by `signs` (1: largest, -1: smallest) are settled.

    At least `least_steps` are taken, unless an invariant subspace is found before, the
    basis is full, or time runs out after the first. For the ends named by `bounded` (some
    of those) there are a few more, since error bounds, which fail with probability
    `delta`, go on falling after the values have settled: at most four or a quarter of the
    steps so far.
    """
    start = random_start(operator, random)
    run = Lanczos(operator, start, deflated, scale, signs, unbroken=least_steps)
    last = max_steps
    while run.steps < last and not run.exhausted:
        try:
            run.step()
        except OutOfTime as stop:
            if not run.steps:
                raise
            run.stopped = stop
            break
        deadline.usable()
        number = run.steps
        if number < least_steps and not (run.restarted or run.basis.full):
            continue
        pairs = {sign: extreme(run, sign, tol) for sign in signs}
        if deadline.watched():
            error = distance_beyond(run, pairs[signs[0]], signs[0])
            deadline.tell(signs[0] * pairs[signs[0]].value, error, max_steps)
        if not all(pair.settled for pair in pairs.values()):
            # A pair can rest at a value for a while, and then leave it.
            last = max_steps
            continue
        if all(
            distance_beyond(run, pairs[sign], sign, delta) <= pairs[sign].goal
            for sign in bounded
        ):
            break
        if last == max_steps:
            extra = max(EXTRA_STEPS, math.ceil(EXTRA_SHARE * number))
            last = min(max_steps, number + extra)
    return run


def spectral_radius(run: Lanczos) -> float:
    """The largest magnitude of a Ritz value, or what was known before the run."""
    return max(run.scale, float(np.abs(run.ritz()[0]).max()))


def measure_of(value: float, sign: int, radius: float) -> float:
    """What a tolerance is relative to.

    The largest is judged relative to itself; the smallest, which may well be 0,
    relative to the spectral radius.
    """
    return abs(value) if sign > 0 else radius


def extreme(run: Lanczos, sign: int, tol: float) -> ExtremePair:
    """The Ritz pair at one end, judged relative to |theta| or to the radius."""
    values, vectors = run.ritz()
    index = -1 if sign > 0 else 0
    value = sign * float(values[index])
    radius = max(run.scale, float(np.abs(values).max()))
    size = measure_of(value, sign, radius)
    floor = run.rounding * radius
    # What is zero up to rounding has no share to aim at.
    known = radius if abs(value) <= floor else size
    return ExtremePair(
        value=value,
        coefficients=vectors[:, index],
        residual=run.betas[-1] * abs(float(vectors[-1, index])),
        allowed=tol * size,
        floor=floor,
        finest=run.finest * radius,
        goal=max(max(BOUND, tol) * known, floor),
    )


def distance_beyond(
    run: Lanczos, pair: ExtremePair, sign: int, delta: float = DELTA
) -> float:
    """How far the eigenvalue at this end can lie beyond its Ritz value."""
    values, vectors = run.ritz()
    return distance_above(
        sign * values,
        run.betas[-1] * np.abs(vectors[-1]),
        run.divisors,
        run.dimension,
        pair.floor,
        [sign * value for value in run.dropped],
        delta,
    )


def verdict(
    pairs: Sequence[ExtremePair],
    tol: float,
    max_steps: int,
    runs: Sequence[Lanczos] = (),
) -> tuple[Status, str]:
    """The status of a set of Ritz pairs, and one sentence about it.

    `runs` are asked whether time ended them.
    """
    missed = [pair for pair in pairs if not pair.reached]
    if not missed:
        return Status.CONVERGED, f"Every residual met the tolerance {tol:g}."
    worst = max(missed, key=lambda pair: pair.residual / max(pair.allowed, 1e-300))
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
