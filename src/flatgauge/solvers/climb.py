"""One climb: projected gradient ascent on a ball, from one start."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch

from flatgauge import deadline
from flatgauge.errors import NonFiniteError
from flatgauge.vectors import Params, add, dot, norm, scale

Function = Callable[[Params], tuple[float, Params]]
"""The value and the gradient at a point of the ball."""

ARMIJO, HALVINGS = 1e-4, 30
# Values within so many units of rounding are the same.
ROUNDING = 4.0
# A climb that needs steps a thousandth of the expected ones, three times in a row, has
# met a kink.
CREEPING, SHRUNK = 3, 1e-3


@dataclass(frozen=True)
class Climb:
    """One restart.

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


class Record:
    """The function, counting its evaluations and keeping the best."""

    def __init__(self, function: Function):
        self.function = function
        self.evaluations = 0
        self.value = self.highest = -math.inf
        self.point: Params = {}
        self.precision = 0.0

    def __call__(self, point: Params) -> tuple[float, Params]:
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
        return value, gradient


def climb_from(
    record: Record, start: Params, radius: float, tol: float, steps: int
) -> Climb:
    """Climb from a start on the sphere; see `ascent.maximize_on_ball`."""
    point, record.highest = start, -math.inf
    value, gradient = record(point)
    direction = _tangent(point, gradient, radius)
    largest = float(norm(gradient))
    rate = radius / largest if largest > 0 else 1.0
    taken, creeping, stalled = 0, 0, False
    visible = math.sqrt(record.precision)
    target = max(tol, visible / 16)
    while True:
        largest = max(largest, float(norm(gradient)))
        stationarity = float(norm(direction)) / largest if largest > 0 else 0.0
        if stationarity <= target or taken == steps:
            break
        found = _search(record, point, value, direction, rate, radius)
        if found is None or creeping == CREEPING:
            stalled = True
            break
        creeping = creeping + 1 if found.rate < SHRUNK * rate else 0
        bend = -float(dot(found.move, add(found.direction, direction, -1.0)))
        square = float(dot(found.move, found.move))
        rate = square / bend if bend > 0 else 4 * found.rate
        point, value, gradient = found.point, found.value, found.gradient
        direction, taken = found.direction, taken + 1
    # Values are flat to second order: below the root of the precision, rounding hides
    # any further rise.
    enough = max(target, visible) if stalled else target
    return Climb(record.highest, value, stationarity, taken, stationarity <= enough)


@dataclass(frozen=True)
class _Step:
    rate: float
    move: Params
    point: Params
    value: float
    gradient: Params
    direction: Params


def _search(
    record: Record,
    point: Params,
    value: float,
    direction: Params,
    rate: float,
    radius: float,
) -> _Step | None:
    """The first step among rate, rate/2, rate/4, ... that raises the function."""
    noise = ROUNDING * record.precision * abs(value)
    # A step far beyond the ball's size only turns the point into the direction.
    rate = min(rate, 1e3 * radius / float(norm(direction)))
    for _ in range(HALVINGS):
        new = _onto_ball(add(point, direction, rate), radius)
        move = add(new, point, -1.0)
        expected = float(dot(direction, move))
        new_value, gradient = record(new)
        new_direction = _tangent(new, gradient, radius)
        gain = new_value - value
        if abs(gain) <= noise:
            # Rounding hides the gain; the trapezoidal rule on the slopes shows it.
            rises = float(dot(add(direction, new_direction), move)) > 0
        else:
            rises = gain >= ARMIJO * expected
        if rises and expected > 0:
            return _Step(rate, move, new, new_value, gradient, new_direction)
        rate /= 2
    return None


def _tangent(point: Params, gradient: Params, radius: float) -> Params:
    """The projection of the gradient on the tangent cone of the ball."""
    square = float(dot(point, point))
    outward = float(dot(point, gradient))
    inside = square < radius**2 * (1 - 64 * _precision(point))
    if inside or outward <= 0:
        return gradient
    return add(gradient, point, -outward / square)


def _precision(point: Params) -> float:
    return torch.finfo(next(iter(point.values())).dtype).eps


def _onto_ball(point: Params, radius: float) -> Params:
    return point if float(norm(point)) <= radius else onto_sphere(point, radius)


def onto_sphere(point: Params, radius: float) -> Params:
    """The point of the sphere in the same direction."""
    return scale(point, radius / float(norm(point)))
