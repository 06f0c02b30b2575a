"""Kendall's, Spearman's and Pearson's correlations of all networks together."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from flatgauge.rankings.columns import Array, Design, signs
from flatgauge.rankings.statistic import Prepared, Weighted, quadratic

LEAST = 2
"""The fewest networks that have an order."""


def kendall(of: Design) -> Prepared:
    """Kendall's τ_b = Σ s_ij t_ij / √(Σ s_ij² · Σ t_ij²), over pairs of networks.

    s_ij is the sign of the difference of values, t_ij that of targets, so that a pair
    that ties in one of them counts in neither sum of its squares (Kendall 1945).
    """

    def prepared(values: Array, targets: Array) -> Weighted:
        own, other = signs(values), signs(targets)
        agree, own, other = own * other, own**2, other**2

        def weighted(weights: Array) -> Array:
            sizes = quadratic(weights, own) * quadratic(weights, other)
            return quadratic(weights, agree) / np.sqrt(sizes)

        return weighted

    return _unless_tied(of, prepared)


def pearson(of: Design) -> Prepared:
    """Pearson's r = Cov(value, target) / √(Var(value) · Var(target))."""

    def prepared(values: Array, targets: Array) -> Weighted:
        x, y = _moderate(values), _moderate(targets)
        return lambda weights: _correlation(weights, x, y)

    return _unless_tied(of, prepared)


def spearman(of: Design) -> Prepared:
    """Spearman's ρ: the Pearson correlation of ranks; those that tie have their mean."""

    def prepared(values: Array, targets: Array) -> Weighted:
        columns = [(signs(one) > 0, signs(one) == 0) for one in (values, targets)]

        def weighted(weights: Array) -> Array:
            ranks = [
                weights @ below.T.astype(float) + (weights @ tied.astype(float)) / 2
                for below, tied in columns
            ]
            return _correlation(weights, *ranks)

        return weighted

    return _unless_tied(of, prepared)


def _unless_tied(of: Design, prepared: Callable[[Array, Array], Weighted]) -> Prepared:
    if len(of.kept) < LEAST:
        return Prepared(reason="there are fewer than two networks with both numbers")
    for name, column in (("values", of.values), ("targets", of.targets)):
        if np.ptp(column) == 0:
            return Prepared(reason=f"all {name} are the same")
    return Prepared(prepared(of.values, of.targets))


def _correlation(weights: Array, x: Array, y: Array) -> Array:
    """The weighted correlation; columns are [networks] or [resamples, networks]."""
    total = weights.sum(1, keepdims=True)
    x = x - (weights * x).sum(1, keepdims=True) / total
    y = y - (weights * y).sum(1, keepdims=True) / total
    squares = (weights * x * x).sum(1) * (weights * y * y).sum(1)
    # What rounding leaves of a column without any differences.
    tied = [_same(weights, column) for column in (x, y)]
    found = (weights * x * y).sum(1) / np.sqrt(squares)
    return np.where(tied[0] | tied[1], np.nan, np.clip(found, -1.0, 1.0))


def _moderate(column: Array) -> Array:
    """The same up to a shift and a factor, without rounding, with squares that are finite."""
    small = np.ldexp(column, -np.frexp(np.abs(column).max())[1])
    return small - small.min()


def _same(weights: Array, column: Array) -> Array:
    """Whether all networks that were drawn have the same number."""
    drawn = weights > 0
    high = np.where(drawn, column, -np.inf).max(1)
    low = np.where(drawn, column, np.inf).min(1)
    return high == low
