"""What a measure's order says of the targets' order, given hyperparameters.

Jiang et al. 2020, "Fantastic generalization measures and where to find them", section 2.2.3.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from flatgauge.rankings.columns import Array, Design, combined, signs
from flatgauge.rankings.statistic import Prepared

MOST = 2
"""The most hyperparameters in a conditioning set."""
SYMBOLS = 3 * 2
"""The signs of a difference of values, which may tie, times those of targets."""
PERMUTATIONS = 20
BIAS = "an estimate from counts, which is too large for few networks"


@dataclass(frozen=True)
class _Table:
    """For each ordered pair of networks: the settings U_S of both, counted from 0."""

    names: tuple[str, ...]
    cells: Array
    count: int

    def share(self, symbols: Array, weights: Array) -> float:
        """I(V_μ; V_g | U_S) / H(V_g | U_S); nan where the settings fix the order."""
        counts = np.bincount(
            self.cells * SYMBOLS + symbols,
            weights=weights,
            minlength=self.count * SYMBOLS,
        ).reshape(self.count, 3, 2)
        whole = _entropy(counts.sum(1))
        # Relative to the pairs: what rounding leaves of a sum that is nothing is nothing.
        if whole <= 1e-12 * counts.sum():
            return np.nan
        return float(np.clip(1 - _entropy(counts.reshape(-1, 2)) / whole, 0.0, 1.0))


def conditional_mutual_information(of: Design, seed: int = 0) -> Prepared:
    """K = min over S, |S| ≤ 2, of I(V_μ; V_g | U_S) / H(V_g | U_S).

    Over ordered pairs of networks (i, j): V_μ is the sign of the difference of values,
    V_g that of targets, and U_S the settings of both in the hyperparameters of S. The
    empty set is one of them. Probabilities are counts:

        I(V_μ; V_g | U_S) = Σ_u p(u) Σ p(a, b | u) log(p(a, b | u) / (p(a | u) p(b | u)))
        H(V_g | U_S) = −Σ_u p(u) Σ_b p(b | u) log p(b | u)

    K is 0 where the hyperparameters of one set explain all that the measure knows, and 1
    where its order always tells that of the targets. Pairs whose targets tie have no
    order to be told and are left out; a tie of the values is a third sign. Sets that fix
    the order of all targets are left out, too.
    """
    if not of.settings:
        return Prepared(reason="no hyperparameters are given")
    own, other = signs(of.values), signs(of.targets)
    first, second = np.nonzero(other)
    if not len(first):
        return Prepared(reason="all targets are the same")
    symbols = _symbols(own, other)[first, second]
    even = np.ones(len(first))
    tables, fixed = [], []
    for names in _sets(list(of.settings)):
        table = _table(of, names, first, second)
        known = np.isfinite(table.share(symbols, even))
        (tables if known else fixed).append(table)
    found = {_shown(one.names): one.share(symbols, even) for one in tables}
    # The empty set fixes nothing: half of the ordered pairs go either way.
    least = min(found, key=lambda name: found[name])

    def weighted(weights: Array) -> Array:
        return np.array(
            [
                _least([one.share(symbols, row[first] * row[second]) for one in tables])
                for row in weights
            ]
        )

    chance = _by_chance(of, other, (first, second), tables, seed)
    return Prepared(
        weighted,
        bias=f"{BIAS}: values in random order have {chance:.3g} here",
        details={
            "given": least,
            "each": found,
            "by_chance": chance,
            "fixed_by": [_shown(one.names) for one in fixed],
        },
    )


def _by_chance(
    of: Design,
    other: Array,
    pairs: tuple[Array, Array],
    tables: list[_Table],
    seed: int,
) -> float:
    """The mean of the statistic for values in random order: what its bias is like."""
    random, even = np.random.default_rng(seed), np.ones(len(pairs[0]))
    found = []
    for _ in range(PERMUTATIONS):
        own = signs(random.permutation(of.values))
        symbols = _symbols(own, other)[pairs]
        found.append(_least([one.share(symbols, even) for one in tables]))
    return float(np.mean(found))


def _symbols(own: Array, other: Array) -> Array:
    return ((own + 1) * 2 + (other > 0)).astype(int)


def _sets(names: list[str]) -> list[tuple[str, ...]]:
    return [one for size in range(MOST + 1) for one in combinations(names, size)]


def _table(of: Design, names: tuple[str, ...], first: Array, second: Array) -> _Table:
    own = combined([of.settings[name] for name in names], len(of.kept))
    cells = combined([own[first], own[second]], len(first))
    return _Table(names, cells, int(cells.max()) + 1)


def _entropy(counts: Array) -> float:
    """The entropy of the columns within each row, in nats, times the number of pairs."""
    rows = counts.sum(1, keepdims=True)
    with np.errstate(divide="ignore", invalid="ignore"):
        parts = np.where(counts > 0, counts * np.log(counts / rows), 0.0)
    return float(-parts.sum())


def _least(shares: list[float]) -> float:
    known = [one for one in shares if np.isfinite(one)]
    return min(known, default=np.nan)


def _shown(names: tuple[str, ...]) -> str:
    return " and ".join(names) or "nothing"
