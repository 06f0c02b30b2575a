"""Which of several columns orders networks best, and whether that is more than chance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from flatgauge.rankings.columns import Array
from flatgauge.rankings.result import RankStatistics
from flatgauge.vocabulary import Association


@dataclass(frozen=True)
class Standing:
    """One column's place by one statistic.

    Attributes:
        statistic: its name.
        column: the column's.
        place: from 1 on; columns that tie with the best do not share a place.
        behind: how far it is from the best, in the statistic's units; 0 for the best.
        low: where the interval of that difference begins, over the same resamples of
            networks, or None without one.
        high: where it ends.
        tied: whether the interval has 0 in it, or there is none, so that the data do not
            say that it is behind.
        overlaps: whether the intervals of both statistics overlap.
    """

    statistic: str
    column: str
    place: int
    behind: float
    low: float | None
    high: float | None
    tied: bool
    overlaps: bool

    @property
    def verdict(self) -> str:
        """The place in words."""
        if self.place == 1:
            return "best"
        if not self.tied:
            return f"behind by {self.behind:.3f}"
        return f"tied with the best (behind by {self.behind:.3f})"


def standings(columns: Mapping[str, RankStatistics]) -> list[Standing]:
    """Each column's place by each statistic, the best first.

    The best has the largest value; the smallest, of sign-errors. Differences from it are
    taken over the same draws of networks, so that what moves both does not count.

    Args:
        columns: by name; of the same networks, with the same seed and resamples.
    """
    found = []
    names = dict.fromkeys(name for one in columns.values() for name in one.statistics)
    for name in names:
        sign = -1 if name in (Association.MEAN_ERROR, Association.WORST_ERROR) else 1
        known = {
            column: value
            for column, one in columns.items()
            if name in one.statistics and (value := one[name].value) is not None
        }
        order = sorted(known, key=lambda column: -sign * known[column])
        for place, column in enumerate(order, 1):
            best, own = columns[order[0]], columns[column]
            low, high = _interval(
                sign * (best.draws[name] - own.draws[name]), own.level
            )
            found.append(
                Standing(
                    statistic=name,
                    column=column,
                    place=place,
                    behind=sign * (known[order[0]] - known[column]),
                    low=low,
                    high=high,
                    tied=low is None or low <= 0,
                    overlaps=_overlap(best, own, name),
                )
            )
    return found


def _interval(draws: Array, level: float) -> tuple[float | None, float | None]:
    known = draws[np.isfinite(draws)]
    if not len(known):
        return None, None
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)


def _overlap(one: RankStatistics, other: RankStatistics, name: str) -> bool:
    ends = one[name].low, one[name].high, other[name].low, other[name].high
    if any(end is None for end in ends):
        return True
    low, high, other_low, other_high = (float(end or 0.0) for end in ends)
    return low <= other_high and other_low <= high
