"""The convex problem behind normalized sharpness: the balancing of a matrix pair."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from flatgauge.errors import NonFiniteError, OptionError
from flatgauge.results import Status
from flatgauge.shapes import Bool, Float
from flatgauge.shards import joined
from flatgauge.solvers.balancing_newton import Solution, solve
from flatgauge.solvers.balancing_support import Support, find_support
from flatgauge.solvers.balancing_terms import Terms
from flatgauge.uses import Matrices


@dataclass(frozen=True)
class Balancing:
    """The infimum of a balancing problem and the scales that approach it.

    Attributes:
        value: the objective at the scales found, an upper bound of the infimum.
        gap: (value - infimum) / value is at most this, by a dual bound, up to rounding of
            the value.
        attained: whether scales exist that reach the infimum.
        row_scale: the log scales x. Only the sums x_i + y_j within one connected
            component are determined. +-inf for a dead row, whose entries can be scaled
            to nothing; if the infimum is not attained, components must also be moved
            apart without end to reach it.
        column_scale: the log scales y, likewise.
        live_rows: which rows have entries that count.
        live_columns: likewise.
        status: whether the gap met the tolerance.
        message: what happened, and what to raise if it did not.
        steps: Newton steps.
    """

    value: float
    gap: float
    attained: bool
    row_scale: Float[Tensor, " rows"]
    column_scale: Float[Tensor, " columns"]
    live_rows: Bool[Tensor, " rows"]
    live_columns: Bool[Tensor, " columns"]
    status: Status
    message: str
    steps: int


def balance(
    alpha: Float[Tensor, "rows columns"],
    beta: Float[Tensor, "rows columns"],
    tol: float = 1e-12,
    max_steps: int = 200,
) -> Balancing:
    """Minimize sum_ij alpha_ij e^{x_i + y_j} + beta_ij e^{-x_i - y_j} over x and y.

    This is equation (17) of Tsuzuku, Sato and Sugiyama 2019 at lambda = 1/2, with
    alpha the clipped diagonal curvature and beta the squared weights. It is the
    balancing of the matrix [[0, alpha], [beta^T, 0]] (Osborne 1960), and its value does
    not change when alpha_ij -> alpha_ij / (r_i c_j)^2 and beta_ij -> beta_ij (r_i c_j)^2.

    Entries on no cycle are dropped (`balancing_support`), a few closed-form sweeps come
    near the minimum, and Newton's method with a dual certificate reaches it
    (`balancing_newton`). Everything is done in float64 where the matrices live, and no
    matrix leaves that device, unless zeros make the search for cycles a long one; the
    scales are on the host.

    Args:
        alpha: nonnegative matrix.
        beta: nonnegative matrix of the same shape.
        tol: the certified relative gap to reach.
        max_steps: the most Newton steps.

    Returns:
        A `Balancing`.

    Raises:
        NonFiniteError: if an entry is NaN or infinite, or the value beyond float64.
        OptionError: if an entry is negative, the shapes differ, or tol or max_steps is
            not positive.

    >>> import torch
    >>> alpha = torch.tensor([[1.0, 2.0, 0.5], [0.25, 3.0, 1.0]])
    >>> beta = torch.tensor([[1, 0.25, 4], [9, 1 / 9, 1]], dtype=torch.float64)
    >>> round(balance(alpha, beta).value, 9)
    15.149517361
    """
    if not tol > 0 or max_steps < 1:
        raise OptionError(
            f"tol={tol:g} and max_steps={max_steps} were given: both must be positive."
        )
    upper, lower = _checked(alpha, "alpha"), _checked(beta, "beta")
    if upper.shape != lower.shape:
        raise OptionError(
            f"alpha has shape {upper.shape} and beta {lower.shape}: give them the same."
        )
    support = find_support(upper > 0, lower > 0)
    solution, unit = _solved(upper, lower, support, tol, max_steps)
    value = unit * solution.value
    if not math.isfinite(value):
        raise NonFiniteError(
            "the infimum is larger than float64 can hold: scale alpha and beta down, by "
            "s and t, which scales it by √(s t)."
        )
    status, message = _verdict(solution.gap, tol, max_steps)
    return Balancing(
        value=value,
        gap=solution.gap,
        attained=support.attained,
        row_scale=_scale(support.row_limits, support.rows, solution.x),
        column_scale=_scale(support.column_limits, support.columns, solution.y),
        live_rows=_mask(support.rows, len(upper)),
        live_columns=_mask(support.columns, upper.shape[1]),
        status=status,
        message=message,
        steps=solution.steps,
    )


def problems_of(
    matrices: Matrices, h: Tensor, weight: Tensor
) -> list[tuple[Tensor, Tensor]]:
    """Alpha and beta of each separate matrix: clipped curvatures and squared weights."""
    alphas = matrices.matrices(joined(h).double().clamp_min(0))
    betas = matrices.matrices(joined(weight).double().square())
    return list(zip(alphas, betas, strict=True))


def reached(tol: float) -> str:
    """What is said of a gap that met the tolerance."""
    return f"The certified relative gap is at most {tol:g}."


def _checked(matrix: Tensor, name: str) -> Tensor:
    matrix = matrix.detach().double()
    if not matrix.numel():
        return matrix
    least, most = (float(end) for end in matrix.aminmax())
    if not (math.isfinite(least) and math.isfinite(most)):
        raise NonFiniteError(
            f"{name} has a NaN or infinite entry: check that the curvature and the "
            "weights are finite."
        )
    if least < 0:
        raise OptionError(
            f"{name} has a negative entry, {least:.3g}: clip it at zero first."
        )
    return matrix


def _solved(
    upper: Tensor, lower: Tensor, support: Support, tol: float, max_steps: int
) -> tuple[Solution, float]:
    """The solution, and the unit of its value."""
    if not len(support.rows):
        nothing = upper.new_zeros(0)
        return Solution(nothing, nothing, 0.0, 0.0, 0), 1.0
    upper, lower = support.part(upper), support.part(lower)
    unit = math.sqrt(float(upper.max())) * math.sqrt(float(lower.max()))
    if upper.shape[0] < upper.shape[1]:
        found = solve(Terms(upper.T, lower.T), support.row_labels, tol, max_steps)
        found = replace(found, x=found.y, y=found.x)
    else:
        found = solve(Terms(upper, lower), support.column_labels, tol, max_steps)
    return found, unit


def _scale(limits: Tensor, live: Tensor, logarithms: Tensor) -> Tensor:
    # Entries of no kind have no limit.
    scale = limits.nan_to_num(nan=0.0, posinf=math.inf, neginf=-math.inf)
    scale[live] = logarithms
    return scale.cpu()


def _mask(chosen: Tensor, size: int) -> Tensor:
    mask = torch.zeros(size, dtype=torch.bool)
    mask[chosen.cpu()] = True
    return mask


def _verdict(gap: float, tol: float, max_steps: int) -> tuple[Status, str]:
    if gap <= tol:
        return Status.CONVERGED, reached(tol)
    return Status.NOT_CONVERGED, (
        f"The relative gap is {gap:.3g} where {tol:g} was asked for: raise "
        f"max_steps={max_steps} or tol."
    )
