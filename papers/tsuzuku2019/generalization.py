"""How well each measure orders the networks with random labels by their accuracy gap."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import flatgauge as fg
from flatgauge.rankings import RankStatistics, Standing, standings
from flatgauge.vocabulary import Association
from papers.experiment import Results
from papers.tsuzuku2019.random_labels import COSTLY, MEASURES

TITLES = {
    "mnist-mlp": "MLP on MNIST",
    "mnist-lenet": "LeNet on MNIST",
    "cifar10-lenet": "LeNet on CIFAR-10",
    "cifar10-wrn": "WRN-16-4 on CIFAR-10",
}
PAPERS = "normalized-sharpness"
TRACE = "hessian-trace"
# Networks below which an order says nothing.
FEWEST = 6
SHOWN = (
    Association.PEARSON,
    Association.SPEARMAN,
    Association.KENDALL,
    Association.FIXED,
)
Network = dict[str, Any]


@dataclass(frozen=True)
class Order:
    """How measures order the networks of a pair.

    Attributes:
        networks: how many there are.
        found: the statistics of each measure.
        places: the place of each measure by each statistic, the best first.
    """

    networks: int
    found: dict[str, RankStatistics]
    places: list[Standing]

    def place(self, statistic: str, request: str) -> Standing | None:
        """One measure's place by one statistic, if it has one."""
        for one in self.places:
            if (one.statistic, one.column) == (statistic, request):
                return one
        return None


def pairs(results: Results) -> Iterator[tuple[str, list[Network]]]:
    """The networks of each pair of which some were trained."""
    for pair in TITLES:
        runs = [n for n in results if n.startswith(f"random-labels-{pair}-")]
        networks = [one for name in runs for one in results[name]["networks"]]
        if networks:
            yield pair, networks


def order(networks: list[Network], costly: bool = False) -> Order | None:
    """How the measures order networks; None of too few.

    Args:
        networks: all of them, or those that fit.
        costly: of the networks that have the costly measures, all measures; else of all
            networks the others.
    """
    requests: tuple[str, ...] = MEASURES
    if costly:
        networks = [one for one in networks if COSTLY[0] in one["measures"]]
        requests = MEASURES + COSTLY
    if len(networks) < FEWEST:
        return None
    gaps = [one["gap"] for one in networks]
    ratios = [one["ratio"] for one in networks]
    found = {
        request: fg.rank_statistics(
            [value(one, request) for one in networks],
            gaps,
            hyperparameters={"ratio": ratios},
        )
        for request in requests
    }
    return Order(len(networks), found, standings(found))


def value(network: Network, request: str) -> float | None:
    """A measure that grows with sharpness; None if the number must not be used."""
    found = network["measures"].get(request)
    if found is None or found["value"] is None:
        return None
    if not fg.Status[found["status"]].trusted or not math.isfinite(found["value"]):
        return None
    return -found["value"] if request == "volume-flatness" else found["value"]
