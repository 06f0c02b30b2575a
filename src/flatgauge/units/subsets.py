"""What kind of mean a function of samples is, read off its values on small subsets."""

from __future__ import annotations

import math
from collections.abc import Callable
from enum import Enum
from itertools import combinations

import numpy as np
from scipy.optimize import nnls

# The ratio of weights that is still taken for a weighted mean.
LEAST_WEIGHT = 1e-5
# A function of some samples, by their indices.
SubsetValue = Callable[[tuple[int, ...]], float]


class MeanKind(Enum):
    """How the value on a set of samples follows from those of its samples."""

    MEAN = "the mean"
    SUM = "the sum, up to a constant"
    WEIGHTED = "a mean with weights of the samples' own"
    COUPLED = "anything else"


def kind_of(value: SubsetValue, count: int, tolerance: float) -> MeanKind:
    """The kind of a function v of subsets, from those of up to three samples and the whole.

    A sum is modular: v(ij) + v(jk) = v(ijk) + v(j). A weighted mean has weights w ≥ 0
    with Σ_{i∈S} w_i (v_i − v(S)) = 0 for every S, which is linear in w. A sample of
    weight 0 has no value of its own (NaN), and does not change any other's.

    Args:
        value: v.
        count: the number of samples; fewer than three cannot show weights.
        tolerance: the difference of values that is rounding.
    """
    everyone = range(count)
    single = {i: value((i,)) for i in everyone}
    heavy = [i for i in everyone if math.isfinite(single[i])]
    sets = [set(pair) for pair in combinations(everyone, 2)]
    sets += [set(triple) for triple in combinations(everyone, 3)] + [set(everyone)]
    found = {_sorted(*one): value(_sorted(*one)) for one in sets}
    found |= {(i,): single[i] for i in everyone}
    rows = []
    for subset, whole in found.items():
        members = [i for i in subset if i in heavy]
        if members and not math.isfinite(whole):
            return MeanKind.COUPLED
        if members:
            rows.append([single[i] - whole if i in members else 0.0 for i in everyone])
    if len(heavy) < 3:
        whole = found[tuple(everyone)]
        added = abs(sum(single.values()) - whole) <= tolerance
        return MeanKind.SUM if added and count > 1 else MeanKind.COUPLED
    matrix = np.array(rows)[:, heavy]
    if np.abs(matrix.sum(1)).max() <= tolerance and len(heavy) == count:
        return MeanKind.MEAN
    if len(heavy) == count and _is_modular(found, count, tolerance):
        return MeanKind.SUM
    weights = _weights(matrix)
    # A maximum is the limit of means whose weights are of ever other sizes.
    real = weights.min() > LEAST_WEIGHT * weights.max()
    if real and np.abs(matrix @ weights).max() <= tolerance:
        return MeanKind.WEIGHTED
    return MeanKind.COUPLED


def _is_modular(
    found: dict[tuple[int, ...], float], count: int, tolerance: float
) -> bool:
    defects = [
        found[_sorted(j, i)]
        + found[_sorted(j, k)]
        - found[_sorted(i, j, k)]
        - found[j,]
        for triple in combinations(range(count), 3)
        for i, j, k in (triple, triple[1:] + triple[:1], triple[2:] + triple[:2])
    ]
    return max(map(abs, defects)) <= tolerance


def _sorted(*members: int) -> tuple[int, ...]:
    return tuple(sorted(members))


def _weights(matrix: np.ndarray) -> np.ndarray:
    """The weights ≥ 0 of mean 1 that come nearest to being a solution."""
    count = matrix.shape[1]
    size = max(np.abs(matrix).max(), np.finfo(float).tiny)
    scaled = np.vstack([matrix / size, np.full((1, count), 1.0 / count)])
    weights, _ = nnls(scaled, np.append(np.zeros(len(matrix)), 1.0))
    return weights / max(weights.mean(), np.finfo(float).tiny)
