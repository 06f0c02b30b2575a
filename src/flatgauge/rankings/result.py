"""Rank statistics as plain data, with intervals and with what they do not say."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from flatgauge.exports import Tabular
from flatgauge.rankings.columns import Array
from flatgauge.tables import html_table, table
from flatgauge.vocabulary import Status


@dataclass(frozen=True)
class RankStatistic:
    """One statistic of one column of values.

    Attributes:
        name: such as "kendall", or "granulated-kendall[width]" for one hyperparameter.
        value: the number, or None where the design cannot identify it.
        low: where its bootstrap interval begins, or None without one.
        high: where it ends.
        status: how far to trust it.
        message: the status in words for this very number.
        details: what it was made of.
    """

    name: str
    value: float | None
    low: float | None
    high: float | None
    status: Status
    message: str
    details: dict[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> str:
        """The number and its interval for people; why, where there is none."""
        if self.value is None:
            return self.status.word
        return f"{self.value:.3f}{self.interval}"

    @property
    def interval(self) -> str:
        """The interval for people, "" without one."""
        if self.low is None or self.high is None:
            return ""
        return f" [{self.low:.3f}, {self.high:.3f}]"


@dataclass(frozen=True, repr=False)
class RankStatistics(Tabular):
    """All statistics of one column of values, by name.

    Attributes:
        statistics: by name.
        networks: how many have both a value and a target.
        left_out: the places of the others among all, by the reason.
        level: what share of the intervals' resamples lies inside.
        resamples: how often networks were drawn.
        seed: of the draws.
        draws: each statistic in every resample, nan where it is not defined; the same
            seed and the same number of networks give the same draws of networks.
    """

    statistics: dict[str, RankStatistic]
    networks: int
    left_out: dict[str, list[int]]
    level: float
    resamples: int
    seed: int
    draws: dict[str, Array] = field(default_factory=dict, compare=False)

    def __getitem__(self, name: str) -> RankStatistic:
        return self.statistics[name]

    def rows(self) -> list[dict[str, Any]]:
        """One flat row for each statistic."""
        return [
            {
                "statistic": name,
                "value": one.value,
                "low": one.low,
                "high": one.high,
                "status": one.status.name,
                "message": one.message,
                "networks": self.networks,
            }
            for name, one in self.statistics.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON, without the draws."""
        return {
            "statistics": {
                name: {**asdict(one), "status": one.status.name}
                for name, one in self.statistics.items()
            },
            "networks": self.networks,
            "left_out": self.left_out,
            "level": self.level,
            "resamples": self.resamples,
            "seed": self.seed,
        }

    def sentence(self) -> str:
        """On how many networks, and what the intervals are."""
        return (
            f"{networks_in_words(self.networks, self.left_out)}; intervals of "
            f"{100 * self.level:g} % from {self.resamples:,} resamples of the networks "
            f"(seed {self.seed})."
        )

    def paper_table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Statistics with their intervals."""
        return ("Statistic", "Value"), [
            (name, one.shown) for name, one in self.statistics.items()
        ]

    def __str__(self) -> str:
        notes = [
            f"{name}: {one.message}"
            for name, one in self.statistics.items()
            if not one.status.trusted
        ]
        return "\n".join([table(self._head, self._cells()), *notes, self.sentence()])

    def _repr_html_(self) -> str:
        return html_table(self._head, self._cells(), self.sentence())

    @property
    def _head(self) -> tuple[str, ...]:
        return "statistic", f"value [{100 * self.level:g} %]", "status"

    def _cells(self) -> list[tuple[str, ...]]:
        return [
            (name, one.shown, one.status.word) for name, one in self.statistics.items()
        ]


def networks_in_words(count: int, left_out: dict[str, list[int]]) -> str:
    """How many networks count, and how many do not, and why.

    >>> networks_in_words(8, {"not converged": [3], "no target": [0, 9]})
    '8 networks; left out: 1 (not converged), 2 (no target)'
    """
    missing = [f"{len(places)} ({why})" for why, places in left_out.items()]
    without = f"; left out: {', '.join(missing)}" if missing else ""
    return f"{count} network{'' if count == 1 else 's'}{without}"
