"""Pairs of networks that share a seed: which of the two is flatter, and how surely.

Everything works on natural logarithms, because the values spread over orders of magnitude.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TIE = 1e-12  # relative; sums that differ by rounding only count as equal


@dataclass(frozen=True)
class Paired:
    """Small against large batches, over the pairs in which both values are usable.

    Attributes:
        pairs: how many pairs were used.
        left_out: how many were not, because a value is missing or cannot be trusted.
        small: the geometric mean of the small-batch networks.
        large: the same of the large-batch networks.
        small_is_smaller: in how many pairs the small-batch value is the smaller one.
        sign_flip: the two-sided p-value of the exact sign-flip test.
        t_test: the two-sided p-value of the paired t-test.
        log_ratios: ln(large / small) of every pair that was used.
    """

    pairs: int
    left_out: int
    small: float | None = None
    large: float | None = None
    small_is_smaller: int = 0
    sign_flip: float | None = None
    t_test: float | None = None
    log_ratios: tuple[float, ...] = ()

    @property
    def ratio(self) -> float | None:
        """Large over small."""
        if self.small is None or self.large is None:
            return None
        return self.large / self.small

    @property
    def orders(self) -> float | None:
        """The ratio in orders of magnitude."""
        return None if self.ratio is None else math.log10(self.ratio)

    @property
    def smaller(self) -> str | None:
        """Which batch has the smaller geometric mean: "small", "large" or "neither"."""
        if self.ratio is None:
            return None
        if self.ratio == 1:
            return "neither"
        return "small" if self.ratio > 1 else "large"


def compare(small: Sequence[float | None], large: Sequence[float | None]) -> Paired:
    """Compare logarithms pair by pair; None is a value that must not be used.

    >>> found = compare([0.0, 0.0, None], [1.0, 3.0, 2.0])
    >>> found.pairs, found.left_out, found.small, found.small_is_smaller
    (2, 1, 1.0, 2)
    """
    every = list(zip(small, large, strict=True))
    used = [(a, b) for a, b in every if a is not None and b is not None]
    left_out = len(every) - len(used)
    if not used:
        return Paired(0, left_out)
    differences = [b - a for a, b in used]
    return Paired(
        pairs=len(used),
        left_out=left_out,
        small=math.exp(sum(a for a, _ in used) / len(used)),
        large=math.exp(sum(b for _, b in used) / len(used)),
        small_is_smaller=sum(one > 0 for one in differences),
        sign_flip=sign_flip(differences),
        t_test=t_test(differences),
        log_ratios=tuple(differences),
    )


def sign_flip(differences: Sequence[float]) -> float:
    """The exact two-sided p-value of the hypothesis that every sign is a coin's.

    The share of all 2^n choices of signs whose sum is at least as far from zero as the
    sum that was found. With n pairs it is never below 2 / 2^n.

    >>> sign_flip([1.0, 2.0, 3.0, 4.0, 5.0])  # 2 of 32
    0.0625
    >>> sign_flip([1.0, -2.0, 3.0])  # |sum| >= 2 in 6 of 8
    0.75
    """
    found = abs(math.fsum(differences))
    slack = TIE * math.fsum(abs(one) for one in differences)
    sums = np.zeros(1)
    for one in differences:
        sums = np.concatenate([sums + one, sums - one])
    return int(np.count_nonzero(np.abs(sums) >= found - slack)) / len(sums)


def holm(values: Sequence[float]) -> list[float]:
    """Holm's correction of the p-values of several tests.

    Where tests are rejected whose corrected value is below a level, the chance that any
    of them should not have been is at most that level.

    >>> holm([0.01, 0.4, 0.03])
    [0.03, 0.4, 0.06]
    """
    corrected = [1.0] * len(values)
    least = 0.0
    for place, index in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        least = max(least, min(1.0, (len(values) - place) * values[index]))
        corrected[index] = least
    return corrected


def t_test(differences: Sequence[float]) -> float | None:
    """The two-sided p-value of Student's t-test; None where it is not defined.

    >>> round(t_test([1.0, 2.0, 3.0]), 6)  # t = 2√3 with 2 degrees of freedom
    0.07418
    """
    if len(differences) < 2 or len(set(differences)) == 1:
        return None
    from scipy import stats

    mean, deviation = spread(differences)
    t = mean / deviation * math.sqrt(len(differences))
    return float(2 * stats.t.sf(abs(t), len(differences) - 1))


@dataclass(frozen=True)
class Line:
    """A least-squares line.

    Attributes:
        count: the number of points.
        slope: of the line.
        r_squared: the share of the variance that it explains.
    """

    count: int
    slope: float
    r_squared: float


def line(points: Sequence[tuple[float, float]]) -> Line | None:
    """The least-squares line through (x, y); None where x or y does not vary.

    >>> line([(0.0, 1.0), (1.0, 3.0), (2.0, 5.0)])
    Line(count=3, slope=2.0, r_squared=1.0)
    """
    if not points:
        return None
    x, y = np.array(points, dtype=np.float64).T
    x, y = x - x.mean(), y - y.mean()
    xx, xy, yy = float(x @ x), float(x @ y), float(y @ y)
    if xx == 0 or yy == 0:
        return None
    return Line(len(points), xy / xx, xy * xy / (xx * yy))


def line_within(groups: Sequence[Sequence[tuple[float, float]]]) -> Line | None:
    """The common line of several groups, each moved to its own mean first.

    Only what varies inside the groups counts: differences between them do not.

    >>> line_within([[(0.0, 0.0), (1.0, 1.0)], [(8.0, 0.0), (9.0, 1.0)]]).slope
    1.0
    """
    centred: list[tuple[float, float]] = []
    for group in groups:
        if group:
            x, y = (sum(values) / len(group) for values in zip(*group, strict=True))
            centred += [(a - x, b - y) for a, b in group]
    return line(centred)


def spread(values: Sequence[float]) -> tuple[float, float]:
    """The mean and the standard deviation (with n - 1; 0 for one value).

    >>> spread([1.0, 3.0])
    (2.0, 1.4142135623730951)
    """
    deviation = float(np.std(values, ddof=1)) if len(values) > 1 else 0.0
    return float(np.mean(values)), deviation
