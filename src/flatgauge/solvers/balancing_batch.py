"""Newton steps for many small balancing problems at once.

What `balancing_terms` and `balancing_newton` do for one problem, with the same
certificate, along a leading dimension: b problems of m rows and n columns. What is not
easy (summands that are lost, systems that cannot be factored, many steps) is left over.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.shapes import Bool, Float, Int
from flatgauge.solvers.balancing_newton import (
    IMBALANCE_PRICE,
    LONGEST,
    PASSES,
    SMALL,
    excess,
)
from flatgauge.solvers.balancing_terms import FAR, MOST_SWEEPS, SWEEPS

# Halvings of a step after which a problem is left over.
HALVINGS = 30


@dataclass(frozen=True)
class Solved:
    """What was reached, one entry for each problem.

    Attributes:
        x: the log scales of the rows, 0 for dead ones.
        y: the log scales of the columns, likewise.
        values: the objective there.
        gaps: its certified relative gap, infinite where a problem was left over.
        steps: the Newton steps taken.
    """

    x: Float[Tensor, "b m"]
    y: Float[Tensor, "b n"]
    values: Float[Tensor, " b"]
    gaps: Float[Tensor, " b"]
    steps: Int[Tensor, " b"]


@dataclass(frozen=True)
class Steps:
    """A Newton step of each problem: see `balancing_newton.Step`.

    Values are NaN where the system could not be factored.
    """

    dx: Float[Tensor, "b m"]
    dy: Float[Tensor, "b n"]
    values: Float[Tensor, " b"]
    slopes: Float[Tensor, " b"]
    longest: Float[Tensor, " b"]
    gaps: Float[Tensor, " b"]


def solve_batch(
    alpha: Float[Tensor, "b m n"],
    beta: Float[Tensor, "b m n"],
    live_rows: Bool[Tensor, "b m"],
    live_columns: Bool[Tensor, "b n"],
    tol: float,
    most_steps: int,
) -> Solved:
    """Sweep, then take Newton steps until every certified relative gap is at most tol.

    Args:
        alpha: the nonnegative matrices, 0 in dead rows and columns; what is live is one
            component.
        beta: likewise.
        live_rows: which rows have entries.
        live_columns: which columns have entries.
        tol: the gap to reach.
        most_steps: after which a problem is left over.
    """
    batch = _Batch(alpha, beta, live_rows, live_columns)
    count = len(alpha)
    values = alpha.new_zeros(count)
    found = Solved(
        x=torch.zeros_like(alpha[:, :, 0]),
        y=torch.zeros_like(alpha[:, 0]),
        values=values,
        gaps=torch.full_like(values, math.inf),
        steps=torch.zeros(count, dtype=torch.int64, device=alpha.device),
    )
    at = torch.arange(count, device=alpha.device)
    # Where nothing is alive, the infimum is 0.
    empty = ~live_rows.any(1)
    found.gaps[empty] = 0.0
    easy = ~empty & batch.started()
    batch, at = batch.some(easy), at[easy]
    if len(at):
        easy = batch.sweep(torch.zeros_like(batch.y), tol, SWEEPS)
        batch, at = batch.some(easy), at[easy]
    for number in range(1, most_steps + 1):
        if not len(at):
            break
        deadline.check()
        step = batch.newton(tol)
        done = step.gaps <= tol
        if bool(done.any()):
            # The step is at hand; taking it makes the value better than certified.
            after = batch.values(step.dx, step.dy)
            better = after < step.values
            chosen, taken = at[done], better[done, None]
            found.x[chosen] = batch.x[done] + torch.where(taken, step.dx[done], 0.0)
            found.y[chosen] = batch.y[done] + torch.where(taken, step.dy[done], 0.0)
            found.values[chosen] = torch.where(better, after, step.values)[done]
            found.gaps[chosen] = step.gaps[done]
            found.steps[chosen] = number
        sizes = batch.line_search(step)
        going = ~done & (sizes > 0) & step.values.isfinite()
        moves = (sizes[:, None] * step.dy)[going]
        batch, at = batch.some(going), at[going]
        if len(at):
            easy = batch.sweep(moves, tol, 1)
            batch, at = batch.some(easy), at[easy]
    return found


class _Batch:
    """p = alpha e^{x_i + y_j} / u and q = beta e^{-x_i - y_j} / u of b problems.

    u = sqrt(max alpha · max beta), as in `balancing_terms.Terms`. Dead rows and columns
    count as sums of 1, and do not move.
    """

    def __init__(
        self, alpha: Tensor, beta: Tensor, live_rows: Tensor, live_columns: Tensor
    ):
        top, bottom = (one.amax((1, 2), keepdim=True) for one in (alpha, beta))
        self._dead = [(~one).to(alpha) for one in (live_rows, live_columns)]
        # Where there is nothing, anything but 0.
        nothing = (~live_rows.any(1)).to(alpha)[:, None, None]
        top, bottom = top + nothing, bottom + nothing
        self.upper, self.lower = alpha / top, beta / bottom
        start = (bottom.log() - top.log()).squeeze(2) / 2
        self.x = start * (1 - self._dead[0])
        self.y = torch.zeros_like(alpha[:, 0])
        self._moved = torch.zeros_like(alpha[:, 0, 0])

    def some(self, chosen: Tensor) -> _Batch:
        """The problems that are chosen."""
        if bool(chosen.all()):
            return self
        part = object.__new__(_Batch)
        for name in ("upper", "lower", "x", "y", "_moved"):
            setattr(part, name, getattr(self, name)[chosen])
        part._dead = [one[chosen] for one in self._dead]
        return part

    def started(self) -> Bool[Tensor, " b"]:
        """Where no summand of the first sweep is lost."""
        return _extent(*self._closed_form(*self._row_sums(self.y))) <= FAR

    def values(self, dx: Tensor, dy: Tensor) -> Float[Tensor, " b"]:
        """The objective at x + dx and y + dy, in units of u."""
        up, down = self._row_sums(dy)
        return (dx.exp() * up + (-dx).exp() * down).sum(1)

    def sweep(
        self, dy: Float[Tensor, "b n"], tol: float, least: int
    ) -> Bool[Tensor, " b"]:
        """Closed-form sweeps from y + dy, and where nothing was lost in them.

        They go on until each problem has had as many as `Terms.sweep` takes.
        """
        dx, before = torch.zeros_like(self.x), torch.full_like(self._moved, math.inf)
        enough = torch.zeros_like(before, dtype=torch.bool)
        for count in range(MOST_SWEEPS):
            up, down = self._row_sums(dy)
            left, right = up * dx.exp(), down * (-dx).exp()
            rows = left + right
            squares = (left - right).square() / (rows + self._dead[0])
            gaps = squares.sum(1) / rows.sum(1) / 2
            # What is not finite ends, too.
            enough |= ~((gaps > tol / 4) & (gaps <= before / 10))
            if count >= least and bool(enough.all()):
                break
            before = gaps
            dx, dy = self._closed_form(up, down)
        self.x, self.y = self.x + dx, self.y + dy
        self._moved = self._moved + _extent(dx, dy)
        rises, turns = dx.exp()[:, :, None], dy.exp()[:, None]
        self.upper, self.lower = self.upper * rises * turns, self.lower / rises / turns
        return self._moved <= FAR

    def newton(self, tol: float) -> Steps:
        """The steps from the present scales: see `balancing_newton.Newton`."""
        ups, downs = ([one.sum(axis) for axis in (2, 1)] for one in self._parts)
        sums = [up + down for up, down in zip(ups, downs, strict=True)]
        slopes = [up - down for up, down in zip(ups, downs, strict=True)]
        values = sums[0].sum(1)
        roots, weights = (
            (one + dead).sqrt() for one, dead in zip(sums, self._dead, strict=True)
        )
        matrix = (self.upper + self.lower) / roots[:, :, None] / weights[:, None]
        turned = matrix.mT
        schur = -(turned @ matrix)
        schur.diagonal(dim1=1, dim2=2).add_(1)
        unit = weights * (1 - self._dead[1])
        unit = unit / unit.norm(dim=1, keepdim=True)
        factor, failed = torch.linalg.cholesky_ex(
            schur + unit[:, :, None] * unit[:, None]
        )
        a, b = slopes[0] / roots, slopes[1] / weights
        u, v = torch.zeros_like(a), torch.zeros_like(b)
        row_rest, column_rest = a, b
        target = max(1e-3 * tol / IMBALANCE_PRICE, 1e-15) * values
        imbalance = torch.full_like(values, math.inf)
        for _ in range(PASSES):
            right = _times(turned, row_rest) - column_rest
            more = torch.cholesky_solve(right[:, :, None], factor).squeeze(2)
            u, v = u - row_rest - _times(matrix, more), v + more
            row_rest, column_rest = a + u + _times(matrix, v), b + v + _times(turned, u)
            imbalance = _inner(row_rest.abs(), roots) + _inner(
                column_rest.abs(), weights
            )
            if bool((imbalance <= target).all()):
                break
        dx, dy = u / roots, v / weights
        # sum G d² by the equations; rounding in it is charged, too.
        squares = _inner(u, row_rest - a) + _inner(v, column_rest - b)
        squares = squares.clamp_min(0) + 1e-15 * (_inner(u, u) + _inner(v, v))
        longest, bounds = self._dual_bounds(dx, dy, squares)
        gaps = (bounds + IMBALANCE_PRICE * imbalance) / values
        values = torch.where(failed == 0, values, math.nan)
        gaps = torch.where((failed == 0) & gaps.isfinite(), gaps, math.inf)
        down_hill = _inner(slopes[0], dx) + _inner(slopes[1], dy)
        return Steps(dx, dy, values, down_hill, longest, gaps)

    def line_search(self, step: Steps) -> Float[Tensor, " b"]:
        """The share of each step to take, 0 where none makes the value smaller."""
        sizes = LONGEST / step.longest.clamp_min(LONGEST)
        wrong = torch.ones_like(sizes, dtype=torch.bool)
        for _ in range(HALVINGS):
            after = self.values(sizes[:, None] * step.dx, sizes[:, None] * step.dy)
            wrong = ~(after <= step.values + 1e-4 * sizes * step.slopes)
            if not bool(wrong.any()):
                break
            sizes = torch.where(wrong, sizes / 2, sizes)
        return torch.where(wrong, 0.0, sizes)

    @property
    def _parts(self) -> tuple[Tensor, Tensor]:
        return self.upper, self.lower

    def _row_sums(self, dy: Tensor) -> tuple[Tensor, Tensor]:
        """Of p and q at y + dy."""
        return _times(self.upper, dy.exp()), _times(self.lower, (-dy).exp())

    def _closed_form(self, up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
        """One sweep, from the sums over rows."""
        rows, columns = self._dead
        dx = ((down + rows).log() - (up + rows).log()) / 2
        up = _times(self.upper.mT, dx.exp())
        down = _times(self.lower.mT, (-dx).exp())
        return dx, ((down + columns).log() - (up + columns).log()) / 2

    def _dual_bounds(
        self, dx: Tensor, dy: Tensor, squares: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The largest |d| of an entry, and a bound of sum p f(d) + q f(-d)."""
        most = dx.amax(1) + dy.amax(1)
        longest = torch.maximum(most, -(dx.amin(1) + dy.amin(1)))
        # f(-D) / D² would cancel for D much smaller than this.
        most = longest.clamp(1e-3, SMALL)
        bounds = squares * ((1 - most) * (-most).log1p() + most) / most.square()
        large = ~(longest <= SMALL)
        if bool(large.any()):
            upper, lower = self.upper[large], self.lower[large]
            step = dx[large, :, None] + dy[large, None]
            missing = (upper == 0) & (lower == 0)
            longest[large] = step.abs().masked_fill_(missing, 0.0).amax((1, 2))
            entries = excess(upper, step) + excess(lower, -step)
            bounds[large] = entries.sum((1, 2))
        return longest, bounds


def _times(matrices: Tensor, vectors: Tensor) -> Tensor:
    return (matrices @ vectors[:, :, None]).squeeze(2)


def _inner(left: Tensor, right: Tensor) -> Tensor:
    return (left * right).sum(1)


def _extent(dx: Tensor, dy: Tensor) -> Tensor:
    return dx.abs().amax(1) + dy.abs().amax(1)
