"""The trace as a sum over groups of tensors, each of which has probes of its own.

The variance of a plain probe is 2 Σ_ij ‖A_ij‖_F² over all pairs of tensors, less the
diagonal's part. In networks that are far from trained nearly all of it lies in pairs
i ≠ j (of the matrices of one block, of the output layer with all others), which add
nothing to the trace. A probe that is zero outside of one group sees only the pairs inside
of it, so tensors that are strongly coupled belong in different groups.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from flatgauge import deadline
from flatgauge.curvature.operator import Block, SymmetricOperator
from flatgauge.solvers.hutchinson import Hutchinson, following, squares
from flatgauge.solvers.student import NORMAL
from flatgauge.vectors import rademacher, together, zeros_like

# Groups of the look at what is coupled, one product each.
LOOK = 6
# The most groups of probes, and the fewest probes of each.
MOST_GROUPS, LEAST_EACH = 8, 4
# Rounds of fitting couplings to sums of them, and of assigning tensors to groups.
FITS, ROUNDS = 20, 10
# The share of the planned probes after which to look at what they say.
SOON = 0.6


@dataclass(frozen=True)
class Grouping:
    """Groups of tensors, by number, and about the variance of one probe of each."""

    groups: list[np.ndarray]
    variances: np.ndarray

    def probes(self, allowed: float) -> np.ndarray:
        """How many each group takes to bring the variance of the sum down to that.

        The fewest in all (Neyman 1934), but for the fewest that each must have.
        """
        roots = np.sqrt(self.variances)
        wanted = np.ceil(roots * roots.sum() / allowed)
        return np.maximum(wanted, LEAST_EACH).astype(int)


def couplings(
    operator: SymmetricOperator, rows: np.ndarray, random: torch.Generator
) -> np.ndarray:
    """About ‖A_ij‖_F² for all pairs of tensors, from `LOOK` products.

    ‖(A w_g)_i‖² with random signs w_g on a group g of tensors is Σ_{j in g} ‖A_ij‖_F² in
    the mean, and close to that for a tensor of many entries. What is returned is the
    symmetric matrix nearest to an outer product, in entropy, with these sums.

    Args:
        operator: the symmetric operator A.
        rows: about Σ_j ‖A_ij‖_F²; the largest are dealt to different groups.
        random: for the signs.
    """
    names = list(operator.space)
    count = min(LOOK, len(names))
    dealt = np.empty(len(names), dtype=int)
    dealt[np.argsort(-rows, kind="stable")] = np.arange(len(names)) % count
    sums = np.empty((len(names), count))
    some = min(together(operator.space, fewest=1), count)
    for start in range(0, count, some):
        groups = range(start, min(start + some, count))
        vectors = []
        for group in groups:
            signs = rademacher(operator.space, random)
            own = {n: signs[n] for n, g in zip(names, dealt, strict=True) if g == group}
            vectors.append({**zeros_like(signs), **own})
        for group, image in zip(groups, operator @ vectors, strict=True):
            sums[:, group] = squares(image)
    return _fitted(sums, dealt)


def _fitted(sums: np.ndarray, dealt: np.ndarray) -> np.ndarray:
    """The symmetric matrix whose rows have these sums over the groups of columns."""
    rows = sums.sum(axis=1)
    found = np.outer(rows, rows) / max(rows.sum(), np.finfo(float).tiny)
    for _ in range(FITS):
        for group in range(sums.shape[1]):
            own = dealt == group
            present = found[:, own].sum(axis=1)
            wanted = sums[:, group]
            ratio = np.divide(wanted, present, np.ones_like(wanted), where=present > 0)
            found[:, own] *= ratio[:, None]
        found = (found + found.T) / 2
    return found


def grouped(coupled: np.ndarray, allowed: float) -> Grouping:
    """The groups that take the fewest probes for that variance of their sum.

    Args:
        coupled: about ‖A_ij‖_F² for all pairs of tensors.
        allowed: the variance to reach.
    """
    most = min(MOST_GROUPS, len(coupled))
    found = [_with_groups(coupled, count) for count in range(1, most + 1)]
    return min(found, key=lambda one: one.probes(allowed).sum())


def _with_groups(coupled: np.ndarray, count: int) -> Grouping:
    """Each tensor, the largest first, in the group that it is least coupled with."""
    between = coupled - np.diag(np.diagonal(coupled))
    # The last label is that of tensors in no group yet.
    labels = np.full(len(coupled), count)
    order = np.argsort(-coupled.sum(axis=1), kind="stable")
    for _ in range(ROUNDS):
        before = labels.copy()
        for i in order:
            labels[i] = count
            sums = np.bincount(labels, between[i], minlength=count + 1)
            labels[i] = np.argmin(sums[:count])
        if np.array_equal(before, labels):
            break
    groups = [np.flatnonzero(labels == g) for g in range(count)]
    groups = [group for group in groups if len(group)]
    variances = [2 * coupled[np.ix_(group, group)].sum() for group in groups]
    return Grouping(groups, np.array(variances))


class Strata:
    """The sum of Hutchinson's estimates of the traces of diagonal blocks.

    Args:
        operator: the symmetric operator.
        grouping: of its tensors.
        planned: how many probes each group is expected to take.
        random: for the signs.
    """

    products_per_probe = 1

    def __init__(
        self,
        operator: SymmetricOperator,
        grouping: Grouping,
        planned: np.ndarray,
        random: torch.Generator,
    ):
        names = list(operator.space)
        self._shares = np.sqrt(grouping.variances)
        self._parts = [
            Hutchinson(Block(operator, [names[i] for i in group]), random, self._tell)
            for group in grouping.groups
        ]
        self.first = max(self.least, int(SOON * planned.sum()))

    @property
    def least(self) -> int:
        """The fewest probes behind an estimate."""
        return LEAST_EACH * len(self._parts)

    @property
    def probes(self) -> int:
        """All of them."""
        return sum(part.probes for part in self._parts)

    @property
    def usable(self) -> bool:
        """Whether every group has a standard error."""
        return all(part.probes > 1 for part in self._parts)

    def grow(self, probes: int) -> None:
        """Add probes until there are this many, in all."""
        for part in self._parts:
            part.grow(2)
        counts = np.array([part.probes for part in self._parts])
        while counts.sum() < probes:
            short = np.flatnonzero(counts < LEAST_EACH)
            counts[short[0] if len(short) else np.argmax(self._shares / counts)] += 1
        for part, count in zip(self._parts, counts, strict=True):
            part.grow(int(count))

    def following(self, excess: float) -> int:
        """How many probes to look at next, if the error is `excess` times the target."""
        return following(self.probes, excess)

    def estimate(self) -> tuple[float, float, float, float]:
        """The estimate, its standard error and degrees of freedom, and its scale."""
        value, error, freedom = sum_of_means([part.singles for part in self._parts])
        scale = sum(part.estimate()[3] for part in self._parts)
        return value, error, freedom, scale

    def _tell(self, value: float, error: float) -> None:
        if self.usable:
            deadline.tell(*self.estimate()[:2])


def sum_of_means(groups: Sequence[np.ndarray]) -> tuple[float, float, float]:
    """The sum of the means of independent draws, its standard error and its freedom.

    The error is widened for the skewness of the sum as `student.skewness` does for one
    mean; the degrees of freedom are Satterthwaite's (1946).
    """
    counts = np.array([len(group) for group in groups])
    variances = np.array([group.var(ddof=1) for group in groups]) / counts
    total = variances.sum()
    value = float(sum(group.mean() for group in groups))
    if total == 0:
        return value, 0.0, float((counts - 1).sum())
    # In units of the error, for numbers of any size; third cumulants of sums add up.
    apart = [(group - group.mean()) / math.sqrt(total) for group in groups]
    raised = (counts - 1) * np.maximum(counts - 2, 1)
    third = sum(
        float((one**3).sum() / n) for one, n in zip(apart, raised * counts, strict=True)
    )
    widened = 1 + abs(third) * (2 * NORMAL**2 + 1) / (6 * NORMAL)
    freedom = total**2 / (variances**2 / (counts - 1)).sum()
    return value, math.sqrt(total) * widened, float(freedom)
