"""Many balancing problems, the small ones of the same shape as one batch.

On small matrices a solver's time goes into calling operations, not into what they
compute. A batch takes as many calls as one problem, and ends with the same certificate
for each.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.results import Status
from flatgauge.shapes import Bool, Float
from flatgauge.solvers.balancing import Balancing, balance, reached
from flatgauge.solvers.balancing_batch import Solved, solve_batch
from flatgauge.solvers.balancing_support import SPREADS

# Entries of a matrix up to which calls take most of the time (64 x 64 took 0.6 to 0.8 of
# its time alone, 128 x 128 more than all of it), and of all in a batch.
SMALL, TOGETHER = 2**12, 2**20
# Newton steps after which a problem goes on alone.
STEPS = 30

Problem = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class _Live:
    """What is left of each problem once dead rows and columns are gone.

    Attributes:
        rows: which rows are.
        columns: which columns are.
        row_limits: the limit of each row's log scale, as in `balancing_support`.
        column_limits: likewise.
        one: whether a few sweeps prove that it is one component.
        attained: whether no positive entry is gone.
    """

    rows: Bool[Tensor, "b m"]
    columns: Bool[Tensor, "b n"]
    row_limits: Float[Tensor, "b m"]
    column_limits: Float[Tensor, "b n"]
    one: Bool[Tensor, " b"]
    attained: Bool[Tensor, " b"]


def balance_together(
    problems: Iterable[Problem], tol: float = 1e-12, max_steps: int = 200
) -> list[Balancing]:
    """`balance(alpha, beta, tol, max_steps)` of each.

    Each gets what `balance` gives it, up to the gap that is certified. Problems with
    several components, and those that are hard, are solved alone, and so are large ones,
    as they come: no more than `TOGETHER` entries of a shape wait for others.

    >>> one = torch.ones(2, 2), torch.ones(2, 2)
    >>> [found.value for found in balance_together([one, one])]
    [8.0, 8.0]
    """
    found: dict[int, Balancing] = {}
    alike: dict[tuple, dict[int, Problem]] = defaultdict(dict)

    def solve(waiting: dict[int, Problem]) -> None:
        made: list[Balancing | None] = [None] * len(waiting)
        if len(waiting) > 1 and min(tol, max_steps) > 0:
            stacks = _stacked(list(waiting.values()))
            made = _batch(*stacks, tol, min(STEPS, max_steps))
        for one, (number, problem) in zip(made, waiting.items(), strict=True):
            found[number] = one or balance(*problem, tol, max_steps)
        waiting.clear()

    for number, (alpha, beta) in enumerate(problems):
        if alpha.shape != beta.shape or not 0 < alpha.numel() <= SMALL:
            found[number] = balance(alpha, beta, tol, max_steps)
            continue
        waiting = alike[alpha.device, *alpha.shape]
        waiting[number] = alpha, beta
        if (len(waiting) + 1) * alpha.numel() > TOGETHER:
            solve(waiting)
    for waiting in alike.values():
        solve(waiting)
    return [found[number] for number in range(len(found))]


def _stacked(problems: list[Problem]) -> tuple[Tensor, Tensor]:
    """All alphas, and all betas."""
    alphas, betas = (
        torch.stack([one.detach().double() for one in each])
        for each in zip(*problems, strict=True)
    )
    return alphas, betas


def _batch(
    alpha: Float[Tensor, "b m n"], beta: Float[Tensor, "b m n"], tol: float, steps: int
) -> list[Balancing | None]:
    """The balancing of each problem; None where it is to be solved alone."""
    least = torch.minimum(alpha, beta).amin((1, 2))
    most = torch.maximum(alpha, beta).amax((1, 2))
    if not bool(((least >= 0) & most.isfinite()).all()):
        # `balance` says which one it is.
        return [None] * len(alpha)
    live = _find_live(alpha > 0, beta > 0)
    both = live.rows[:, :, None] & live.columns[:, None]
    alpha, beta = alpha * both, beta * both
    units = alpha.amax((1, 2)).sqrt() * beta.amax((1, 2)).sqrt()
    # Without a way from row to row, Newton's system is singular in several directions.
    one = live.one[:, None, None]
    if alpha.shape[1] < alpha.shape[2]:
        parts = (alpha * one).mT, (beta * one).mT, live.columns, live.rows
    else:
        parts = alpha * one, beta * one, live.rows, live.columns
    rows, columns = (part & live.one[:, None] for part in parts[2:])
    solved = solve_batch(parts[0], parts[1], rows, columns, tol, steps)
    x, y = solved.x, solved.y
    if alpha.shape[1] < alpha.shape[2]:
        x, y = y, x
    return _told(live, solved, x, y, units, tol)


def _told(
    live: _Live, solved: Solved, x: Tensor, y: Tensor, units: Tensor, tol: float
) -> list[Balancing | None]:
    """What was found, problem by problem; scales and masks are on the host."""
    values = (units * solved.values).tolist()
    good = (live.one & (solved.gaps <= tol) & solved.gaps.isfinite()).tolist()
    scales = [
        _apart(torch.where(alive, logs, limits))
        for alive, logs, limits in (
            (live.rows, x, live.row_limits),
            (live.columns, y, live.column_limits),
        )
    ]
    masks = [_apart(alive) for alive in (live.rows, live.columns)]
    gaps, steps = solved.gaps.tolist(), solved.steps.tolist()
    attained = live.attained.tolist()
    return [
        Balancing(
            value=value,
            gap=gaps[i],
            attained=attained[i],
            row_scale=scales[0][i],
            column_scale=scales[1][i],
            live_rows=masks[0][i],
            live_columns=masks[1][i],
            status=Status.CONVERGED,
            message=reached(tol),
            steps=steps[i],
        )
        if good[i] and math.isfinite(value)
        else None
        for i, value in enumerate(values)
    ]


def _apart(rows: Tensor) -> list[Tensor]:
    """On the host, each by itself: a view would hold on to all of them."""
    return [row.clone() for row in rows.cpu()]


def _find_live(upper: Bool[Tensor, "b m n"], lower: Bool[Tensor, "b m n"]) -> _Live:
    """As `find_support` does for one problem, but for several components."""
    limits = [
        upper.new_zeros(len(upper), size, dtype=torch.float64)
        for size in upper.shape[1:]
    ]
    alive = [torch.ones_like(one, dtype=torch.bool) for one in limits]
    changed = True
    while changed:
        changed = False
        for axis in (0, 1):
            others = alive[1 - axis].unsqueeze(axis + 1)
            ups, downs = ((part & others).any(2 - axis) for part in (upper, lower))
            dead = alive[axis] & ~(ups & downs)
            limits[axis][dead & downs] = math.inf
            limits[axis][dead & ups] = -math.inf
            alive[axis] &= ~dead
            changed |= bool(dead.any())
    both = alive[0][:, :, None] & alive[1][:, None]
    kept = [part & both for part in (upper, lower)]
    gone = [
        (part ^ left).any((1, 2))
        for part, left in zip((upper, lower), kept, strict=True)
    ]
    # With the arrows turned, what the first row reaches is what reaches it.
    one = _reach_all(*kept, *alive) & _reach_all(*kept[::-1], *alive)
    return _Live(*alive, *limits, one=one, attained=~(gone[0] | gone[1]))


def _reach_all(
    upper: Tensor, lower: Tensor, rows: Tensor, columns: Tensor
) -> Bool[Tensor, " b"]:
    """Where a few sweeps show that the first live row reaches all that is alive."""
    first = rows.to(torch.uint8).argmax(1)
    met = upper[torch.arange(len(upper), device=upper.device), first]
    reached_rows = torch.zeros_like(rows)
    for _ in range(SPREADS):
        reached_rows = (lower & met[:, None]).any(2)
        if bool(((reached_rows == rows).all(1) & (met == columns).all(1)).all()):
            break
        met = met | (upper & reached_rows[:, :, None]).any(1)
    return (reached_rows == rows).all(1) & (met == columns).all(1)
