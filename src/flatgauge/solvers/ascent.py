"""The maximum of a function over a ball, by projected gradient ascent with restarts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from flatgauge.deadline import OutOfTime
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers.climb import (
    ROUNDING,
    Climb,
    Function,
    Record,
    climb_from,
    onto_sphere,
)
from flatgauge.solvers.directions import random_directions
from flatgauge.vectors import Params, norm, zeros_like

# The share of the rise that a converged climb may lose to rounding.
NOISE = 0.01


@dataclass(frozen=True)
class Ascent:
    """The largest value found on the ball.

    Attributes:
        value: never below the function at the centre or at any point evaluated.
        point: where it is.
        center: the function at the centre of the ball.
        center_gradient: its gradient there.
        rounding: an estimate of the rounding error of a difference of values.
        climbs: one for each start: the given ones, the centre's gradient, random ones.
        status: CONVERGED if the best climb ended at a stationary point, and time
            allowed all of them.
        message: what happened, and what to raise.
        evaluations: of the function with its gradient.
        stopped: whether time ran out.
    """

    value: float
    point: Params
    center: float
    center_gradient: Params
    rounding: float
    climbs: list[Climb]
    status: Status
    message: str
    evaluations: int
    stopped: bool


def maximize_on_ball(
    function: Function,
    space: Params,
    radius: float,
    *,
    starts: Sequence[Params] = (),
    restarts: int = 2,
    tol: float = 1e-6,
    steps: int = 500,
    seed: int = 0,
    order: Params | None = None,
) -> Ascent:
    """A local maximum of f over |η| <= radius: the best of several climbs.

    Each climb moves along the projection of ∇f on the ball's tangent cone (all of ∇f
    inside, its tangential part where it points outwards on the sphere) and back onto
    the ball, with Barzilai and Borwein's step, halved until f rises (Birgin, Martínez
    and Raydan 2000). The climbs start on the sphere at the given vectors, along the
    gradient at the centre, and in random directions.

    The result is the largest of some local maxima, thus a lower bound of the maximum.
    Starts, steps and tests know nothing but f and the inner product of η: where two
    networks give the same f in whitened coordinates, they give the same iterates.

    Args:
        function: η ↦ (f(η), ∇f(η)).
        space: names, shapes and dtypes of η.
        radius: of the ball.
        starts: vectors whose directions are tried, such as ± the top eigenvector.
        restarts: the number of random directions.
        tol: a climb ends where the projected gradient is this small against the largest
            gradient it met. The value's relative error is of the order of tol², so
            that tolerances below the precision's root (over 16) are raised to it.
        steps: the most steps of one climb.
        seed: of the random directions.
        order: see `random_directions`.

    Raises:
        OptionError: if radius, restarts, tol or steps is out of its range.
        NonFiniteError: if the function is not finite somewhere.

    >>> import torch
    >>> def f(x):  # x² + 3 y² on the unit disc: 3
    ...     weights = torch.tensor([1.0, 3.0]).double()
    ...     return float((weights * x["x"] ** 2).sum()), {"x": 2 * weights * x["x"]}
    >>> found = maximize_on_ball(f, {"x": torch.zeros(2).double()}, radius=1.0)
    >>> round(found.value, 12), found.status.name
    (3.0, 'CONVERGED')
    """
    _check(radius, restarts, tol, steps)
    record = Record(function)
    center, center_gradient = record(zeros_like(space))
    draws = random_directions(space, restarts, seed, order)
    candidates = [*starts, center_gradient, *draws]
    first = [onto_sphere(one, radius) for one in candidates if float(norm(one)) > 0]
    climbs: list[Climb] = []
    stopped: OutOfTime | None = None
    try:
        for one in first:
            climbs.append(climb_from(record, one, radius, tol, steps))
    except OutOfTime as stop:
        stopped = stop
    rounding = ROUNDING * record.precision * max(abs(record.value), abs(center))
    highest = [one for one in climbs if one.value >= record.value - rounding]
    status, message = _verdict(highest, len(climbs), tol, steps)
    lost = min((record.value - one.end for one in highest if one.converged), default=0)
    if lost > max(rounding, NOISE * (record.value - center)):
        status, message = _verdict([], len(climbs), tol, steps)
    if stopped is not None:
        status = Status.NOT_CONVERGED
        done = f"after {record.evaluations} gradients, at a lower bound of the maximum"
        message = stopped.after(done)
    return Ascent(
        record.value,
        record.point,
        center,
        center_gradient,
        max(rounding, lost),
        climbs,
        status,
        message,
        record.evaluations,
        stopped is not None,
    )


def _verdict(
    highest: Sequence[Climb], count: int, tol: float, steps: int
) -> tuple[Status, str]:
    if not highest:
        return (
            Status.NOT_CONVERGED,
            f"none of {count} climbs ended as high as the best point that was met: raise "
            "restarts= or steps=.",
        )
    if any(climb.converged for climb in highest):
        return (
            Status.CONVERGED,
            f"the largest of {count} local maxima: a lower bound of the maximum, whose "
            "uncertainty is rounding alone.",
        )
    nearest = min(highest, key=lambda climb: climb.stationarity)
    if nearest.steps >= steps:
        advice = f"after {steps} steps: raise steps= or tol="
    else:
        advice = (
            "where no step rises, at a kink or by rounding: raise tol= or the radius"
        )
    return (
        Status.NOT_CONVERGED,
        f"a lower bound of the maximum only: the best of {count} climbs still had a "
        f"relative projected gradient of {nearest.stationarity:.1e}, above tol={tol:g}, "
        f"{advice}.",
    )


def _check(radius: float, restarts: int, tol: float, steps: int) -> None:
    if not (math.isfinite(radius) and radius > 0 and 0 < tol < 1):
        raise OptionError(
            f"the ball's radius is {radius} and tol={tol}: give a positive radius, and "
            "0 < tol < 1."
        )
    if restarts < 0 or steps < 1:
        raise OptionError(
            f"restarts={restarts} and steps={steps}: give at least 0 and at least 1."
        )
