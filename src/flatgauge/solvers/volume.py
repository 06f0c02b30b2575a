"""Volumes of sublevel sets, along rays from a point."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from flatgauge import deadline
from flatgauge.draws import while_time_lasts
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers.directions import random_directions
from flatgauge.vectors import Params, scale, size

Loss = Callable[[Params], float]
"""The loss at a displacement from the point; infinite where it is not defined."""

# Radii that the search for the first exit tries: R / 2^10, R / 2^9, ..., R.
DOUBLINGS = 10
# How far below that it looks for a point inside the set.
HALVINGS = 200
# Directions that must share the estimate for its standard error to mean something.
FEWEST = 10.0


@dataclass(frozen=True)
class StarVolume:
    """The volume of the part of a set that rays from the centre see.

    Attributes:
        log_volume: its logarithm; -infinity if no ray had a point in the set.
        standard_error: of the logarithm.
        exits: min(r(u), R) for each direction.
        capped: the share of directions that did not leave the set inside the ball.
        effective_directions: (Σ r^n)² / Σ r^2n: how many share the estimate.
        status: ESTIMATED, or NOT_CONVERGED where too few directions share it.
        message: what it bounds, and what to raise.
        evaluations: of the loss.
    """

    log_volume: float
    standard_error: float
    exits: list[float]
    capped: float
    effective_directions: float
    status: Status
    message: str
    evaluations: int


def log_ball_volume(dimension: int, radius: float) -> float:
    """ln(π^{n/2} R^n / Γ(n/2 + 1)).

    >>> abs(log_ball_volume(3, 1.0) - math.log(4 / 3 * math.pi)) < 1e-12
    True
    """
    half = dimension / 2
    return (
        half * math.log(math.pi) - math.lgamma(half + 1) + dimension * math.log(radius)
    )


def star_volume(
    loss: Loss,
    space: Params,
    level: float,
    radius: float,
    *,
    directions: int = 100,
    tol: float = 1e-3,
    seed: int = 0,
    order: Params | None = None,
) -> StarVolume:
    r"""The volume of the star-shaped part of {loss < level} in a ball around 0.

    $$\mathrm{vol} = V_n \, E_u[\min(r(u), R)^n]$$

    with u uniform on the sphere, r(u) the first exit along u and V_n the volume of the
    unit ball. It bounds the volume of the set from below: rays see only its star-shaped
    part. The first exit is bracketed by doubling, then bisected, and its lower end is
    taken; an excursion out of the set and back between two radii is not seen.

    Args:
        loss: of a displacement.
        space: names, shapes and dtypes of a displacement.
        level: of the set.
        radius: R.
        directions: how many.
        tol: the most that a bisection may take off the log-volume.
        seed: of the directions.
        order: see `random_directions`.

    Raises:
        OptionError: if radius, directions or tol is out of its range.

    >>> import torch
    >>> space = {"x": torch.zeros(2, dtype=torch.float64)}
    >>> found = star_volume(lambda d: float(d["x"].norm()), space, 0.5, radius=2.0)
    >>> abs(found.log_volume - math.log(math.pi / 4)) < 1e-3
    True
    """
    if not (math.isfinite(radius) and radius > 0 and tol > 0 and directions >= 2):
        raise OptionError(
            f"radius={radius}, tol={tol} and directions={directions}: give positive "
            "numbers, and two directions at least."
        )
    dimension = size(space)
    search = _Search(loss, level, radius, 1 + tol / dimension)
    units = random_directions(space, directions, seed, order)
    found, stopped = while_time_lasts(map(search.exit, units))
    directions = len(found)
    exits = torch.tensor(found, dtype=torch.float64)
    powers = dimension * exits.log()
    top = float(powers.max())
    if top == -math.inf:
        mean, error, effective = top, 0.0, 0.0
    else:
        weights = (powers - top).exp()
        mean = top + math.log(float(weights.mean()))
        error = float(weights.std() / weights.mean()) / math.sqrt(directions)
        effective = float(weights.sum() ** 2 / weights.square().sum())
    message = "a lower bound: rays see only the star-shaped part"
    status = Status.ESTIMATED
    if effective < min(FEWEST, directions):
        status = Status.NOT_CONVERGED
        message += (
            f"; and {effective:.1f} of {directions} directions make up the estimate, so "
            "that its standard error says little: raise directions="
        )
    if stopped is not None:
        status = Status.NOT_CONVERGED
        message = stopped.after(f"after {directions} directions").rstrip(".")
    return StarVolume(
        mean + log_ball_volume(dimension, 1.0),
        error,
        exits.tolist(),
        float((exits == radius).double().mean()),
        effective,
        status,
        message + ".",
        search.evaluations,
    )


class _Search:
    """The first exit from {loss < level} along a ray."""

    def __init__(self, loss: Loss, level: float, radius: float, ratio: float):
        self.loss = loss
        self.level = level
        self.radius = radius
        self.ratio = max(ratio, 1 + 1e-12)
        self.evaluations = 0

    def inside(self, unit: Params, distance: float) -> bool:
        deadline.check()
        self.evaluations += 1
        return self.loss(scale(unit, distance)) < self.level

    def exit(self, unit: Params) -> float:
        """The largest radius known to be inside before the first one outside."""
        start = self.radius / 2**DOUBLINGS
        if self.inside(unit, start):
            low, high = start, 2 * start
            while self.inside(unit, high):
                if high >= self.radius:
                    return self.radius
                low, high = high, 2 * high
        else:
            low, high = start / 2, start
            for _ in range(HALVINGS):
                if self.inside(unit, low):
                    break
                low, high = low / 2, low
            else:
                return 0.0
        while high > self.ratio * low:
            middle = math.sqrt(low * high)
            if not low < middle < high:
                break
            low, high = (middle, high) if self.inside(unit, middle) else (low, middle)
        return low
