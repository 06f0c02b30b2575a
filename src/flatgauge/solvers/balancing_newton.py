"""Newton steps and the certificate for a connected balancing problem."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.errors import NonFiniteError
from flatgauge.shapes import Float, Int
from flatgauge.solvers.balancing_schur import Schur
from flatgauge.solvers.balancing_terms import SWEEPS, Terms

LONGEST = 1.0
"""The largest change of a log scale x_i + y_j in one Newton step."""
IMBALANCE_PRICE = 40.0
"""The price of a unit of imbalance that a step leaves, in the certificate.

It costs that times the distance of x and y to the minimum, which is taken to be no more
than this: a factor of e^40 between scales is beyond what float64 can resolve in a sum.
"""
PASSES = 3
"""The most solutions of a Newton system; those after the first refine it."""
SMALL = 0.1
"""Below it, |d| need not be known entry by entry."""
BLOCK = 2**22
"""Entries of a matrix that are looked at together."""


@dataclass(frozen=True)
class Solution:
    """Log scales, and what they reach.

    Attributes:
        x: the log scales of the rows.
        y: the log scales of the columns.
        value: the objective there, in units of `Terms`.
        gap: its certified relative gap.
        steps: the Newton steps taken.
    """

    x: Float[Tensor, " rows"]
    y: Float[Tensor, " columns"]
    value: float
    gap: float
    steps: int


@dataclass(frozen=True)
class Step:
    """A Newton step from a point.

    Attributes:
        dx: the change of x.
        dy: the change of y.
        value: the objective at the point.
        slope: its derivative along the step.
        longest: at least |dx_i + dy_j| of every entry.
        gap: at least the relative distance of the value to the minimum.
    """

    dx: Float[Tensor, " rows"]
    dy: Float[Tensor, " columns"]
    value: float
    slope: float
    longest: float
    gap: float


def solve(
    terms: Terms, labels: Int[Tensor, " columns"], tol: float, max_steps: int
) -> Solution:
    """Sweep, then take Newton steps until the certified relative gap is at most tol.

    Args:
        terms: the problem, best with no fewer rows than columns; it is moved.
        labels: the component of each column.
        tol: the gap to reach.
        max_steps: the most Newton steps.
    """
    terms.sweep(torch.zeros_like(terms.y), tol, SWEEPS)
    newton = Newton(terms, labels, tol)
    for count in range(1, max_steps + 1):
        deadline.check()
        step = newton.step()
        x, y, value = terms.x, terms.y, step.value
        if step.gap <= tol:
            # The step is at hand; taking it makes the value better than certified.
            after = terms.value(step.dx, step.dy)
            if after < value:
                x, y, value = x + step.dx, y + step.dy, after
            return Solution(x, y, value, step.gap, count)
        size = _line_search(terms, step)
        if size is None:
            return Solution(x, y, value, step.gap, count)
        terms.sweep(size * step.dy, tol, 1)
    step = newton.step()
    return Solution(terms.x, terms.y, step.value, step.gap, max_steps)


class Newton:
    """Newton steps, each with a bound of the distance to the minimum.

    With p, q the two matrices of summands, G = p + q, and d_ij = dx_i + dy_j the Newton
    step, p (1 + d) and q (1 - d) have equal row and column sums; where they are
    nonnegative they are feasible for the dual problem, so that
    value - minimum <= sum p f(d) + q f(-d), f(u) = (1 + u) ln(1 + u) - u.
    The bound is infinite where they are not. Where |d| <= D < 1 everywhere, the sum is at
    most f(-D) / D² sum G d², since f(u) / u² falls with u, and that needs no matrix.

    The step solves [[diag(G 1), G], [G^T, diag(G^T 1)]] (dx, dy) = -(row sums, column
    sums of p - q) by the Schur complement on the columns (`balancing_schur`).
    """

    def __init__(self, terms: Terms, labels: Int[Tensor, " columns"], tol: float):
        self._terms = terms
        self._labels = labels
        self._tol = tol
        self._direct = False
        self._matrix = torch.empty_like(terms.upper)

    def step(self) -> Step:
        """The step from the terms' present scales."""
        upper, lower = self._terms.upper, self._terms.lower
        ups, downs = ([part.sum(axis) for axis in (1, 0)] for part in (upper, lower))
        rows, columns = (up + down for up, down in zip(ups, downs, strict=True))
        row_slope, column_slope = (
            up - down for up, down in zip(ups, downs, strict=True)
        )
        value = float(rows.sum())
        if not (
            math.isfinite(value) and min(float(rows.min()), float(columns.min())) > 0
        ):
            raise NonFiniteError(
                "the entries of alpha and beta lie further apart than float64 can hold: "
                "set those to 0 that are negligible."
            )
        roots, weights = rows.sqrt(), columns.sqrt()
        matrix = torch.add(upper, lower, out=self._matrix)
        matrix.div_(roots[:, None]).div_(weights)
        schur = Schur(matrix, weights, self._labels, self._direct)
        # The unknowns are u = roots dx and v = weights dy: u + N v = -a, N^T u + v = -b.
        a, b = row_slope / roots, column_slope / weights
        u, v = torch.zeros_like(a), torch.zeros_like(b)
        row_rest, column_rest = a, b
        # Rounding, or so little that the price hardly matters.
        target = max(1e-3 * self._tol / IMBALANCE_PRICE, 1e-15) * value
        imbalance = math.inf
        for _ in range(PASSES):
            more = schur.solve(matrix.T @ row_rest - column_rest, target)
            u, v = u - row_rest - matrix @ more, v + more
            row_rest, column_rest = a + u + matrix @ v, b + v + matrix.T @ u
            imbalance = float(row_rest.abs() @ roots + column_rest.abs() @ weights)
            if imbalance <= target:
                break
        self._direct = schur.direct
        dx, dy = u / roots, v / weights
        # sum G d² by the equations; rounding in it is charged, too.
        squares = u @ (row_rest - a) + v @ (column_rest - b)
        squares = float(squares.clamp_min(0) + 1e-15 * (u @ u + v @ v))
        longest, bound = _dual_bound(self._terms, dx, dy, squares)
        slope = float(row_slope @ dx + column_slope @ dy)
        gap = (bound + IMBALANCE_PRICE * imbalance) / value
        return Step(dx, dy, value, slope, longest, gap)


def _line_search(terms: Terms, step: Step) -> float | None:
    size = LONGEST / max(LONGEST, step.longest)
    while size > 1e-10:
        after = terms.value(size * step.dx, size * step.dy)
        if after <= step.value + 1e-4 * size * step.slope:
            return size
        size /= 2
    return None


def _dual_bound(
    terms: Terms, dx: Tensor, dy: Tensor, squares: float
) -> tuple[float, float]:
    """The largest |d| of an entry, and a bound of sum p f(d) + q f(-d).

    The former is that of all pairs if it is small; the sum is then bounded by sum G d².
    """
    longest = max(float(dx.max() + dy.max()), -float(dx.min() + dy.min()))
    if longest <= SMALL:
        # f(-D) / D² would cancel for D much smaller than this.
        most = max(longest, 1e-3)
        return longest, squares * ((1 - most) * math.log1p(-most) + most) / most**2
    longest, bound, size = 0.0, 0.0, max(BLOCK // len(dy), 1)
    blocks = (dx.split(size), terms.upper.split(size), terms.lower.split(size))
    for some, upper, lower in zip(*blocks, strict=True):
        step = some[:, None] + dy
        missing = (upper == 0) & (lower == 0)
        longest = max(longest, float(step.abs().masked_fill_(missing, 0.0).max()))
        bound += float((excess(upper, step) + excess(lower, -step)).sum())
    return longest, bound


def excess(part: Tensor, step: Tensor) -> Tensor:
    """Each entry of part · f(step), infinite where a step is beyond -1."""
    each = (1 + step) * step.log1p() - step
    each = torch.where(step > -1, each, torch.where(step == -1, 1.0, math.inf))
    return torch.where(part > 0, part * each, 0.0)
