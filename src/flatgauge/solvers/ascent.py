"""The maximum of a function over a ball, by projected gradient ascent with restarts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from flatgauge import deadline
from flatgauge.deadline import OutOfTime
from flatgauge.errors import NonFiniteError, OptionError
from flatgauge.results import Status
from flatgauge.solvers.directions import random_directions
from flatgauge.vectors import Params, add, dot, norm, scale, zeros_like

Function = Callable[[Params], tuple[float, Params]]
"""The value and the gradient at a point of the ball."""

ARMIJO, HALVINGS = 1e-4, 30
# Values that differ by so many units in the last place are the same: a sum over the data
# may round its last few additions otherwise at another point.
SAME_VALUE_UNITS = 4.0
# A climb that needs steps a thousandth of the expected ones, three times in a row, has
# met a kink.
CREEPING, SHRUNK = 3, 1e-3
# The share of the rise that a converged climb may lose to rounding.
NOISE = 0.01


@dataclass(frozen=True)
class Climb:
    """A local maximum, from one start.

    Attributes:
        value: the highest that it met.
        end: the function where it ended; by rounding this can be a little less.
        stationarity: the norm of the projected gradient, relative to the largest
            gradient that the climb met.
        steps: accepted steps, each of which raised the function.
        converged: whether the stationarity met the tolerance, or all that rounding
            lets one see.
    """

    value: float
    end: float
    stationarity: float
    steps: int
    converged: bool


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
    seen = _Evaluations(function, radius)
    center = seen(zeros_like(space))
    draws = random_directions(space, restarts, seed, order)
    candidates = [*starts, center.gradient, *draws]
    first = [_onto_sphere(one, radius) for one in candidates if float(norm(one)) > 0]
    climbs: list[Climb] = []
    stopped: OutOfTime | None = None
    try:
        for one in first:
            climbs.append(_climb_from(seen, one, tol, steps))
    except OutOfTime as stop:
        stopped = stop
    rounding = (
        SAME_VALUE_UNITS * seen.precision * max(abs(seen.value), abs(center.value))
    )
    highest = [one for one in climbs if one.value >= seen.value - rounding]
    status, message = _verdict(highest, len(climbs), tol, steps)
    lost = min((seen.value - one.end for one in highest if one.converged), default=0)
    if lost > max(rounding, NOISE * (seen.value - center.value)):
        status, message = _verdict([], len(climbs), tol, steps)
    if stopped is not None:
        status = Status.NOT_CONVERGED
        done = f"after {seen.evaluations} gradients, at a lower bound of the maximum"
        message = stopped.after(done)
    return Ascent(
        seen.value,
        seen.point,
        center.value,
        center.gradient,
        max(rounding, lost),
        climbs,
        status,
        message,
        seen.evaluations,
        stopped is not None,
    )


@dataclass(frozen=True)
class _Place:
    """A point of the ball, the function there, and the way up that stays inside."""

    point: Params
    value: float
    gradient: Params
    direction: Params


class _Evaluations:
    """The function on the ball, counting its evaluations and keeping the best."""

    def __init__(self, function: Function, radius: float):
        self.function = function
        self.radius = radius
        self.evaluations = 0
        self.value = self.highest = -math.inf
        self.point: Params = {}
        self.precision = 0.0

    def __call__(self, point: Params) -> _Place:
        """The value and the gradient, which must be finite."""
        deadline.check()
        value, gradient = self.function(point)
        self.evaluations += 1
        deadline.usable()
        if not (math.isfinite(value) and math.isfinite(float(norm(gradient)))):
            raise NonFiniteError(
                f"the function is {value} at a point of the ball, or its gradient is "
                "not finite there: choose a smaller ball."
            )
        if value > self.value:
            self.value, self.point = value, point
        self.highest = max(self.highest, value)
        self.precision = _precision(point)
        return _Place(point, value, gradient, _tangent(point, gradient, self.radius))


def _climb_from(seen: _Evaluations, start: Params, tol: float, steps: int) -> Climb:
    """Climb from a start on the sphere; see `maximize_on_ball`."""
    seen.highest = -math.inf
    here = seen(start)
    largest = float(norm(here.gradient))
    rate = seen.radius / largest if largest > 0 else 1.0
    taken, creeping, stalled = 0, 0, False
    visible = math.sqrt(seen.precision)
    target = max(tol, visible / 16)
    while True:
        largest = max(largest, float(norm(here.gradient)))
        stationarity = float(norm(here.direction)) / largest if largest > 0 else 0.0
        if stationarity <= target or taken == steps:
            break
        found = _search(seen, here, rate)
        if found is None or creeping == CREEPING:
            stalled = True
            break
        used, move, new = found
        creeping = creeping + 1 if used < SHRUNK * rate else 0
        bend = -float(dot(move, add(new.direction, here.direction, -1.0)))
        rate = float(dot(move, move)) / bend if bend > 0 else 4 * used
        here, taken = new, taken + 1
    # Values are flat to second order: below the root of the precision, rounding hides
    # any further rise.
    enough = max(target, visible) if stalled else target
    return Climb(seen.highest, here.value, stationarity, taken, stationarity <= enough)


def _search(
    seen: _Evaluations, here: _Place, rate: float
) -> tuple[float, Params, _Place] | None:
    """The first step among rate, rate/2, rate/4, ... that raises the function.

    Its rate, the way it goes, and where it leads.
    """
    noise = SAME_VALUE_UNITS * seen.precision * abs(here.value)
    # A step far beyond the ball's size only turns the point into the direction.
    rate = min(rate, 1e3 * seen.radius / float(norm(here.direction)))
    for _ in range(HALVINGS):
        new = seen(_onto_ball(add(here.point, here.direction, rate), seen.radius))
        move = add(new.point, here.point, -1.0)
        expected = float(dot(here.direction, move))
        gain = new.value - here.value
        if abs(gain) <= noise:
            # Rounding hides the gain; the trapezoidal rule on the slopes shows it.
            rises = float(dot(add(here.direction, new.direction), move)) > 0
        else:
            rises = gain >= ARMIJO * expected
        if rises and expected > 0:
            return rate, move, new
        rate /= 2
    return None


def _tangent(point: Params, gradient: Params, radius: float) -> Params:
    """The projection of the gradient on the tangent cone of the ball."""
    square = float(dot(point, point))
    outward = float(dot(point, gradient))
    inside = square < radius * radius * (1 - 64 * _precision(point))
    if inside or outward <= 0:
        return gradient
    return add(gradient, point, -outward / square)


def _precision(point: Params) -> float:
    return torch.finfo(next(iter(point.values())).dtype).eps


def _onto_ball(point: Params, radius: float) -> Params:
    return point if float(norm(point)) <= radius else _onto_sphere(point, radius)


def _onto_sphere(point: Params, radius: float) -> Params:
    """The point of the sphere in the same direction."""
    return scale(point, radius / float(norm(point)))


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
