"""How far an extreme eigenvalue can lie beyond the Ritz values of a Lanczos run.

That bounds the error; whether a value has converged is decided by its residual, in
`ritz.ExtremePair.reached`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

DELTA = 1e-3
"""Error bounds hold with probability at least 1 - DELTA over the random start."""


def distance_above(
    values: np.ndarray,
    residuals: np.ndarray,
    divisors: Sequence[float],
    dimension: int,
    floor: float,
    dropped: Sequence[float] = (),
    delta: float = DELTA,
) -> float:
    r"""A bound of lambda_max - max(values) that holds with probability 1 - delta.

    A residual proves only that *some* eigenvalue is near a Ritz value: two nearly equal
    eigenvalues share one Ritz vector, and an eigenvector that the start vector hardly
    contains is not seen at all. The largest eigenvalue is bounded as follows. Whatever
    orthonormal vectors pi_i(A) q_1 a run has made of its start vector q_1, with real
    polynomials pi_i, Bessel's inequality for a unit eigenvector x of lambda = lambda_max
    gives <x, q_1>^2 S(lambda) <= 1 with S = sum_i pi_i^2. A uniformly distributed unit
    vector q_1 in R^n has |<x, q_1>| <= t with probability at most t sqrt(2 n / pi), so
    with t = delta sqrt(pi / (2 n)), outside an event of probability delta, S(lambda) is
    at most 1 / t^2: at every step at once, and whatever was decided on the way. (The
    idea is that of Kuczynski and Wozniakowski 1992; here the actual polynomials are
    used.)

    Take the Ritz vectors y_j = pi_j(A) q_1 of the current basis, with values theta_j and
    residuals rho_j, and the next vector q = pi(A) q_1. A step divides what A has made of
    the last vector by beta, so that pi has the degree and the leading coefficient
    1 / prod_m beta_m of all steps. A y_j = theta_j y_j +- rho_j q says that
    (lambda - theta_j) pi_j(lambda) = +- rho_j pi(lambda): all theta_j are roots of pi,
    and of each other's pi_j. A restart keeps q and some of the y_j, so that the theta_d
    that it drops are roots of all that is kept, and of all that is made of it. Hence

        pi(lambda) = prod_d (lambda - theta_d) prod_j (lambda - theta_j) / prod_m beta_m,
        S(lambda) = pi(lambda)^2 (1 + sum_j rho_j^2 / (lambda - theta_j)^2).

    Above the largest theta_j, which no dropped one exceeds, every term of S is the square
    of a polynomial with all its roots below: S increases, and lambda is at most the
    point where it reaches 1 / t^2.

    Args:
        values: the eigenvalues theta_j of T.
        residuals: their rho_j >= 0, the norms of A y_j - theta_j y_j.
        divisors: the betas of all steps.
        dimension: of the space that the start vector was drawn in.
        floor: the smallest distance to return, for rounding.
        dropped: the Ritz values theta_d that restarts let go.
        delta: the probability that the bound may fail with.

    Returns:
        The bound, at least `floor`. For the smallest eigenvalue pass negated values.

    >>> import numpy as np
    >>> distance_above(np.ones(1), np.zeros(1), [0.0], dimension=10, floor=1e-15)
    1e-15
    """
    top = float(values.max())
    radius = max(float(np.abs(values).max()), *divisors)
    if radius == 0.0:
        return 0.0
    threshold = -2 * math.log(delta * math.sqrt(math.pi / (2 * dimension)))
    gaps = (top - values) / radius
    others = (top - np.array(dropped)) / radius
    # A zero beta means an unbounded polynomial; 1e-30 stands for it.
    scale = float(np.log(np.maximum(np.array(divisors) / radius, 1e-30)).sum())
    with np.errstate(divide="ignore"):
        weights = np.log(residuals / radius)

    def reached(distance: float) -> bool:
        logs = np.log(gaps + distance)
        pi = float(logs.sum() + np.log(others + distance).sum()) - scale
        terms = np.logaddexp.reduce(np.append(2 * (weights - logs), 0.0))
        return 2 * pi + float(terms) >= threshold

    low = max(floor / radius, 1e-300)
    if reached(low):
        return floor
    high = 1.0
    while not reached(high):
        high *= 2
    while high > low * (1 + 1e-3):
        middle = math.sqrt(low * high)
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high * radius
