"""How far an extreme eigenvalue can lie beyond the Ritz values of a Lanczos run."""

from __future__ import annotations

import math
from collections.abc import Sequence

DELTA = 1e-3
"""Each error bound holds with probability at least 1 - DELTA over the start vector."""


def distance_above(
    alphas: Sequence[float],
    betas: Sequence[float],
    ritz: float,
    dimension: int,
    floor: float,
) -> float:
    r"""A bound of lambda_max - ritz that holds with probability 1 - DELTA.

    A residual proves only that *some* eigenvalue is near a Ritz value: two nearly equal
    eigenvalues share one Ritz vector, and an eigenvector that the start vector hardly
    contains is not seen at all. The largest eigenvalue is bounded as follows. With
    q_{j+1} = p_j(A) q_1 the Lanczos vectors and x a unit eigenvector of
    lambda = lambda_max, Bessel's inequality gives

        <x, q_1>^2 * sum_{j=0..m} p_j(lambda)^2 <= 1,

    where p_0 = 1 and beta_j p_j = (lambda - alpha_j) p_{j-1} - beta_{j-1} p_{j-2}. The
    sum increases with lambda above the largest Ritz value. A uniformly distributed unit
    vector q_1 in R^n has |<x, q_1>| <= t with probability at most t sqrt(2 n / pi),
    so with t = DELTA sqrt(pi / (2 n)), outside an event of probability DELTA, lambda is
    at most the point where the sum reaches 1 / t^2, at every step m at once. (The idea
    is that of Kuczynski and Wozniakowski 1992; here the actual polynomials are used.)

    Args:
        alphas: the diagonal of T.
        betas: what stands beside it, and beta_m last.
        ritz: the largest eigenvalue of T.
        dimension: of the space that the start vector was drawn in.
        floor: the smallest distance to return, for rounding.

    Returns:
        The bound, at least `floor`. For the smallest eigenvalue pass negated alphas and
        ritz.

    >>> distance_above([1.0], [0.0], ritz=1.0, dimension=10, floor=1e-15)
    1e-15
    """
    radius = max(map(abs, [*alphas, *betas, ritz]))
    if radius == 0.0:
        return 0.0
    threshold = -2 * math.log(DELTA * math.sqrt(math.pi / (2 * dimension)))
    diagonal = [(ritz - alpha) / radius for alpha in alphas]
    # A zero beta means an unbounded polynomial; 1e-30 stands for it.
    beside = [max(beta / radius, 1e-30) for beta in betas]

    def reached(distance: float) -> bool:
        return _log_sum(diagonal, beside, distance) >= threshold

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


def _log_sum(diagonal: list[float], beside: list[float], distance: float) -> float:
    # The p_j overflow, so their logarithms are added up from the ratios p_j / p_{j-1},
    # which are positive above all Ritz values.
    logarithm, logarithms = 0.0, [0.0]
    coupling = 0.0
    for shifted, beta in zip(diagonal, beside, strict=True):
        ratio = max((distance + shifted - coupling) / beta, 1e-300)
        logarithm += math.log(ratio)
        logarithms.append(logarithm)
        coupling = beta / ratio
    top = max(logarithms)
    return 2 * top + math.log(sum(math.exp(2 * (each - top)) for each in logarithms))
