"""Sweeps, Newton steps and the certificate for a connected balancing problem."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh

SWEEPS = 5
"""Alternating closed-form sweeps before the first Newton step."""
LONGEST = 1.0
"""The largest change of a log scale x_i + y_j in one Newton step."""
ROUNDING = 40.0
"""The price of a unit of imbalance left by rounding in the certificate."""


@dataclass(frozen=True)
class Problem:
    """sum_ij exp(a_ij + x_i + y_j) + exp(b_ij - x_i - y_j), entries -inf where missing.

    The labels number the components; every row and column has entries of both kinds.
    """

    log_alpha: np.ndarray
    log_beta: np.ndarray
    row_labels: np.ndarray
    column_labels: np.ndarray

    def terms(self, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The two matrices of summands."""
        total = x[:, None] + y
        return np.exp(self.log_alpha + total), np.exp(self.log_beta - total)

    def value(self, x: np.ndarray, y: np.ndarray) -> float:
        """The objective."""
        upper, lower = self.terms(x, y)
        return float(upper.sum() + lower.sum())


@dataclass(frozen=True)
class Solution:
    """Log scales, the objective there, its certified gap, and the Newton steps taken."""

    x: np.ndarray
    y: np.ndarray
    value: float
    gap: float
    steps: int


def sweep(problem: Problem, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Minimize over x and then over y, each in closed form.

    x_i = 1/2 ln(sum_j beta_ij e^{-y_j} / sum_j alpha_ij e^{y_j}), and y alike.
    """
    x = (_log_sum(problem.log_beta - y, 1) - _log_sum(problem.log_alpha + y, 1)) / 2
    rows = x[:, None]
    y = (
        _log_sum(problem.log_beta - rows, 0) - _log_sum(problem.log_alpha + rows, 0)
    ) / 2
    return x, y


def solve(problem: Problem, tol: float, max_steps: int) -> Solution:
    """Sweep, then take Newton steps until the certified relative gap is at most tol."""
    x, y = np.zeros(len(problem.row_labels)), np.zeros(len(problem.column_labels))
    for _ in range(SWEEPS):
        x, y = sweep(problem, y)
    for step in range(max_steps):
        upper, lower = problem.terms(x, y)
        value = float(upper.sum() + lower.sum())
        dx, dy, gap = newton_step(problem, upper, lower)
        if gap <= tol * value:
            # The step is at hand; taking it makes the value better than certified.
            after = problem.value(x + dx, y + dy)
            if after < value:
                return Solution(x + dx, y + dy, after, gap / value, step + 1)
            return Solution(x, y, value, gap / value, step + 1)
        following = _line_search(problem, x, y, dx, dy, upper, lower)
        if following is None:
            return Solution(x, y, value, gap / value, step + 1)
        x, y = sweep(problem, following[1])
    upper, lower = problem.terms(x, y)
    value = float(upper.sum() + lower.sum())
    gap = newton_step(problem, upper, lower)[2]
    return Solution(x, y, value, gap / value, max_steps)


def newton_step(
    problem: Problem, upper: np.ndarray, lower: np.ndarray
) -> tuple[np.ndarray, np.ndarray, float]:
    """The Newton step, and a bound of the distance to the minimum.

    With p, q the two matrices of summands, G = p + q, and d_ij = dx_i + dy_j the Newton
    step, p (1 + d) and q (1 - d) have equal row and column sums; where they are
    nonnegative they are feasible for the dual problem, so that
    value - minimum <= sum p f(d) + q f(-d), f(u) = (1 + u) ln(1 + u) - u.
    The bound is infinite where they are not.

    The step solves [[diag(G 1), G], [G^T, diag(G^T 1)]] (dx, dy) = -(row sums, column
    sums of p - q) by the Schur complement on the shorter side.
    """
    if upper.shape[0] < upper.shape[1]:
        turned = Problem(
            problem.log_alpha.T,
            problem.log_beta.T,
            problem.column_labels,
            problem.row_labels,
        )
        dy, dx, gap = newton_step(turned, upper.T, lower.T)
        return dx, dy, gap
    both, excess = upper + lower, upper - lower
    rows, columns = both.sum(axis=1), both.sum(axis=0)
    scaled = both / np.sqrt(rows)[:, None] / np.sqrt(columns)
    apply_inverse = _schur_inverse(scaled, np.sqrt(columns), problem.column_labels)
    dx, dy = np.zeros(len(rows)), np.zeros(len(columns))
    # The second and third pass refine the first; what is left is charged below.
    for _ in range(3):
        left = excess + both * (dx[:, None] + dy)
        row_rest, column_rest = left.sum(axis=1), left.sum(axis=0)
        right = both.T @ (row_rest / rows) - column_rest
        more = apply_inverse(right / np.sqrt(columns)) / np.sqrt(columns)
        dx = dx - (row_rest + both @ more) / rows
        dy = dy + more
    step = dx[:, None] + dy
    left = excess + both * step
    imbalance = np.abs(left.sum(axis=1)).sum() + np.abs(left.sum(axis=0)).sum()
    if np.any((upper > 0) & (step < -1)) or np.any((lower > 0) & (step > 1)):
        return dx, dy, np.inf
    bound = np.where(upper > 0, upper * _excess(step), 0.0)
    bound += np.where(lower > 0, lower * _excess(-step), 0.0)
    return dx, dy, float(bound.sum() + ROUNDING * imbalance)


def _schur_inverse(scaled: np.ndarray, weights: np.ndarray, labels: np.ndarray):
    # 1 - N^T N is singular: adding c to x and -c to y of a component changes nothing.
    # One rank-one term for each component fixes that without changing the solution.
    matrix = np.eye(len(weights)) - scaled.T @ scaled
    squares = np.bincount(labels, weights**2)
    gauge = np.outer(weights, weights) / squares[labels]
    matrix += np.where(labels[:, None] == labels, gauge, 0.0)
    try:
        factor = cho_factor(matrix)
        return lambda right: cho_solve(factor, right)
    except LinAlgError:
        # Parts that hang together by less than rounding: leave them where they are.
        values, vectors = eigh(matrix)
        inverse = np.where(values > 1e-14, 1 / np.maximum(values, 1e-14), 0.0)
        return lambda right: vectors @ (inverse * (vectors.T @ right))


def _line_search(
    problem: Problem,
    x: np.ndarray,
    y: np.ndarray,
    dx: np.ndarray,
    dy: np.ndarray,
    upper: np.ndarray,
    lower: np.ndarray,
) -> tuple[np.ndarray, np.ndarray] | None:
    step = dx[:, None] + dy
    value, slope = (upper + lower).sum(), ((upper - lower) * step).sum()
    longest = np.abs(step[(upper > 0) | (lower > 0)]).max()
    size = min(1.0, LONGEST / longest)
    while size > 1e-10:
        new_x, new_y = x + size * dx, y + size * dy
        if problem.value(new_x, new_y) <= value + 1e-4 * size * slope:
            return new_x, new_y
        size /= 2
    return None


def _log_sum(exponents: np.ndarray, axis: int) -> np.ndarray:
    top = exponents.max(axis=axis, keepdims=True)
    total = np.exp(exponents - top).sum(axis=axis)
    return np.log(total) + top.squeeze(axis)


def _excess(step: np.ndarray) -> np.ndarray:
    # (1 + u) ln(1 + u) - u, by its series where the difference would cancel.
    series = step**2 * (0.5 - step / 6 + step**2 / 12)
    beyond = np.maximum(1 + step, 0.0)
    logarithm = np.log(np.where(beyond > 0, beyond, 1.0))
    return np.where(np.abs(step) < 1e-4, series, beyond * logarithm - step)
