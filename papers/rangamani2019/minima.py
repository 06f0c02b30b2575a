"""Table 4's networks as stored: which measures they have, and pairs with equal seeds."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flatgauge as fg
from papers.experiment import Results
from papers.rangamani2019.statistics import Paired, compare
from papers.rangamani2019.table4 import NETWORKS, PAPERS_MEASURE, PROTOCOLS

PROTOCOL_TITLES = {
    "authors": "the authors' code",
    "printed": "as printed",
    "clean": "batch size alone",
}
NETWORK_TITLES = {
    "fc": "fully connected",
    "lenet": "LeNet",
    "alexnet": "AlexNet type",
    "vgg16": "VGG16 type",
}
LAYERS, NODES, NOTHING = "layers", "layers and nodes", "nothing"


@dataclass(frozen=True)
class Measure:
    """A measure of the table.

    Attributes:
        request: its name in the results.
        label: its name on the page.
        unmoved_by: the rescalings that it claims not to notice.
        loss: the loss whose curvature it sees, where it sees one.
        logarithmic: whether the stored value is a natural logarithm.
        volume: whether it is that of a volume in n dimensions, which is larger for
            flatter minima: the inverse of its n-th root is compared.
    """

    request: str
    label: str
    unmoved_by: str
    loss: str = "cross-entropy"
    logarithmic: bool = False
    volume: bool = False


NORMALIZED = "normalized-cross-entropy"
CROSS_ENTROPY = "[surrogate=objective]"
MEASURES = (
    Measure(PAPERS_MEASURE, "Riemannian spectral norm (the paper's)", LAYERS),
    Measure(
        "riemannian-spectral-norm[metric=node]",
        "Riemannian spectral norm, node metric (its section 6)",
        NODES,
    ),
    Measure(
        "normalized-sharpness",
        "normalized sharpness, normalized loss",
        NODES,
        NORMALIZED,
    ),
    Measure(f"normalized-sharpness{CROSS_ENTROPY}", "normalized sharpness", NODES),
    Measure(
        "matrix-normalized-sharpness",
        "matrix-normalized sharpness, normalized loss",
        LAYERS,
        NORMALIZED,
    ),
    Measure(
        f"matrix-normalized-sharpness{CROSS_ENTROPY}",
        "matrix-normalized sharpness",
        LAYERS,
    ),
    Measure("fisher-rao-norm", "Fisher-Rao norm", NODES),
    Measure("fisher-rao-norm[diagonal=True]", "Fisher-Rao norm, diagonal", NODES),
    Measure("hessian-spectral-norm", "largest eigenvalue of the Hessian", NOTHING),
    Measure("hessian-trace", "trace of the Hessian", NOTHING),
    Measure(
        "spectral-norm-product",
        "product of the layers' spectral norms",
        NOTHING,
        logarithmic=True,
    ),
    Measure("epsilon-sharpness", "ε-sharpness", NOTHING),
    Measure("riemannian-sharpness", "Riemannian ε-sharpness", LAYERS),
    Measure(
        "riemannian-sharpness[metric=node]",
        "Riemannian ε-sharpness, node metric",
        NODES,
    ),
    Measure(
        "volume-flatness", "volume of the flat region, inverse", NOTHING, volume=True
    ),
    Measure(
        f"normalized-sharpness-direct{CROSS_ENTROPY}",
        "normalized sharpness, direct search",
        NODES,
    ),
    Measure("pac-bayes-bound", "PAC-Bayes bound", LAYERS, NORMALIZED),
    Measure(
        "pac-bayes-bound[posterior=node]",
        "PAC-Bayes bound, node posterior",
        NODES,
        NORMALIZED,
    ),
)


@dataclass(frozen=True)
class Cell:
    """The networks of one protocol and shape, those of one seed at the same place.

    Attributes:
        protocol: "authors", "printed" or, for CIFAR-10, "clean".
        network: "fc" or "lenet"; for CIFAR-10 "alexnet" or "vgg16".
        sizes: the small and the large batch.
        small: the networks of the small batch, as stored.
        large: those of the large batch.
    """

    protocol: str
    network: str
    sizes: tuple[int, int]
    small: list[dict[str, Any]]
    large: list[dict[str, Any]]

    @property
    def title(self) -> str:
        """Such as "LeNet, as printed"."""
        return title_of(self.protocol, self.network)

    def compare(self, measure: Measure) -> Paired:
        """The measure at small against large batches; no pair where it was not run."""
        if not self.has(measure):
            return compare([], [])
        return self._compare(lambda network: logarithm(network, measure))

    def has(self, measure: Measure) -> bool:
        """Whether the measure was part of the runs."""
        networks = (*self.small, *self.large)
        return any(measure.request in network["measures"] for network in networks)

    def compare_losses(self) -> Paired:
        """The train losses."""
        return self._compare(log_loss)

    def compare_quotients(self) -> Paired:
        """The paper's measure divided by the train loss."""
        return self._compare(log_quotient)

    def _compare(self, log: Callable[[dict[str, Any]], float | None]) -> Paired:
        return compare(list(map(log, self.small)), list(map(log, self.large)))


def title_of(protocol: str, network: str) -> str:
    """Such as "LeNet, as printed"."""
    return f"{NETWORK_TITLES[network]}, {PROTOCOL_TITLES[protocol]}"


def sides(results: Results, protocol: str, network: str) -> list[tuple[int, list[Any]]]:
    """(batch size, networks) of the runs that were made, the smallest batch first."""
    prefix = f"table4-{protocol}-{network}-"
    made = {
        results.records[name]["settings"]["batch_size"]: results[name]["networks"]
        for name in results
        if name.startswith(prefix)
    }
    return [(size, made[size]) for size in sorted(made)]


def cells(results: Results) -> list[Cell]:
    """The protocols and networks of which both batch sizes were run."""
    found = []
    for protocol in PROTOCOLS:
        for network in NETWORKS:
            made = sides(results, protocol, network)
            if len(made) != 2:
                continue
            (small, first), (large, second) = made
            one, other = _by_seed(first), _by_seed(second)
            seeds = [seed for seed in one if seed in other]
            found.append(
                Cell(
                    protocol,
                    network,
                    (small, large),
                    [one[seed] for seed in seeds],
                    [other[seed] for seed in seeds],
                )
            )
    return found


def logarithm(network: dict[str, Any], measure: Measure) -> float | None:
    """The natural logarithm of a measure; None if the number must not be used."""
    found = network["measures"].get(measure.request)
    if found is None or not fg.Status[found["status"]].trusted:
        return None
    value = found["value"]
    if value is None or not math.isfinite(value):
        return None
    if measure.volume:
        return -value / found["dimension"]
    return value if measure.logarithmic else _log(value)


def log_loss(network: dict[str, Any]) -> float | None:
    """The natural logarithm of the train loss; None if it is zero."""
    return _log(network["train_loss"])


def log_quotient(network: dict[str, Any]) -> float | None:
    """The same of the paper's measure over the train loss."""
    norm, loss = logarithm(network, MEASURES[0]), log_loss(network)
    return None if norm is None or loss is None else norm - loss


def points(networks: list[dict[str, Any]]) -> list[tuple[float, float]]:
    """(ln train loss, ln of the paper's measure) of the networks that have both."""
    pairs = [(log_loss(one), logarithm(one, MEASURES[0])) for one in networks]
    return [(x, y) for x, y in pairs if x is not None and y is not None]


def _log(value: float | None) -> float | None:
    return math.log(value) if value is not None and value > 0 else None


def _by_seed(networks: list[dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {network["seed"]: network for network in networks}
