"""Table 4, CIFAR-10, cell by cell: the paper's number, ours, and a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from papers.experiment import Results
from papers.page import number, table
from papers.rangamani2019.cifar import SEEDS, sizes
from papers.rangamani2019.cifar_cells import NOT_YET, Network, sides, trained
from papers.rangamani2019.comparison import NEAR, plus_minus
from papers.rangamani2019.minima import MEASURES, logarithm
from papers.rangamani2019.statistics import spread

AGREES = "agrees"
Value = Callable[[Network], float | None]


def accuracy(network: Network) -> float | None:
    """The test accuracy in percent."""
    return 100 * network["test_accuracy"]


def norm(network: Network) -> float | None:
    """The paper's measure, if its value can be used."""
    log = logarithm(network, MEASURES[0])
    return None if log is None else math.exp(log)


def stored(network: Network) -> float | None:
    """What the authors' code would write down of it."""
    return None if norm(network) is None else network["stored_by_authors"]


# What is printed -> the key in expected.json, and our value.
NUMBERS: dict[str, tuple[str, Value]] = {
    "test accuracy (%)": ("accuracy", accuracy),
    "spectral norm": ("norm", norm),
    "the same, as the authors' code stores it": ("norm", stored),
}


@dataclass(frozen=True)
class Ours:
    """Our networks for one cell.

    Attributes:
        run: how many networks were run.
        values: those of the networks that trained and can be used.
        untrained: how many did not train at all; their values are left out.
        declared: how many networks there are to be.
    """

    run: int
    values: list[float]
    untrained: int
    declared: int

    @property
    def text(self) -> str:
        """Mean ± standard deviation and how many, or that there is nothing yet."""
        if not self.run:
            return NOT_YET
        how_many = f"{len(self.values)} of {self.declared} networks"
        if self.untrained:
            how_many += f", {self.untrained} did not train"
        if not self.values:
            return f"– ({how_many})"
        mean, deviation = spread(self.values)
        return f"{number(mean)} ± {number(deviation, 2)} ({how_many})"


def ours(
    results: Results, protocol: str, network: str, large: int, value: Value
) -> Ours:
    """The networks of one cell; `large` is 1 for the large batch, else 0."""
    made = sides(results)
    full = made.get((protocol, network, sizes(False)[large]))
    found = list(
        (full or made.get((protocol, network, sizes(True)[large]), {})).values()
    )
    good = [one for one in found if trained(one)]
    known = [one for one in map(value, good) if one is not None]
    return Ours(len(found), known, len(found) - len(good), SEEDS[network])


def verdict(printed: list[float], found: Ours, points: bool) -> str:
    """Whether a mean agrees with the printed one; one network alone has no spread.

    Args:
        printed: the paper's mean and standard deviation.
        found: ours.
        points: whether a difference is told in points and not as a factor.
    """
    if not found.run:
        return NOT_YET
    if not found.values:
        return "no value"
    if len(found.values) == 1:
        return "one network only"
    mean, deviation = spread(found.values)
    difference = mean - printed[0]
    if abs(difference) <= 2 * math.hypot(deviation, printed[1]):
        return AGREES
    if points:
        return f"differs by {difference:+.1f} points"
    factor = mean / printed[0]
    near = 1 / NEAR <= factor <= NEAR
    return f"{'near' if near else 'differs'}: {number(factor, 3)} times the paper's"


def cells_table(results: Results, expected: list[dict[str, Any]]) -> str:
    """Every number that the paper prints for CIFAR-10, beside ours."""
    rows = []
    for entry in expected:
        for large, row in enumerate(entry["rows"] if "cifar" in entry else []):
            for label, (key, value) in NUMBERS.items():
                authors, clean = (
                    ours(results, protocol, entry["cifar"], large, value)
                    for protocol in ("authors", "clean")
                )
                rows.append(
                    [
                        f"{entry['title']}, {row['batch']}, {label}",
                        plus_minus(row[key], 7),
                        authors.text,
                        verdict(row[key], authors, key == "accuracy"),
                        clean.text,
                    ]
                )
    head = ["network, batch size, number", "the paper", "the authors' code", "verdict"]
    return table([*head, "batch size alone"], rows)


def agreeing(results: Results, expected: list[dict[str, Any]]) -> tuple[int, int, int]:
    """Of the printed numbers: how many of ours agree, were made, and are printed."""
    agree, made, printed = 0, 0, 0
    for entry in expected:
        for large, row in enumerate(entry["rows"] if "cifar" in entry else []):
            for key, value in (("accuracy", accuracy), ("norm", norm)):
                found = ours(results, "authors", entry["cifar"], large, value)
                printed += 1
                made += len(found.values) > 1
                agree += verdict(row[key], found, key == "accuracy") == AGREES
    return agree, made, printed
