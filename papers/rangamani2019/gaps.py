"""What the gap between the two batch sizes goes with: the loss, the rate, the batch size.

A gap is log10 of large over small, pair by pair. The account is one of orders of
magnitude, which add up: what the train losses make, and what is left.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from papers.experiment import Results
from papers.page import number, table
from papers.rangamani2019 import cifar, cifar_cells, equal_loss, table4
from papers.rangamani2019.comparison import exponent
from papers.rangamani2019.minima import (
    MEASURES,
    Cell,
    log_quotient,
    points,
    title_of,
)
from papers.rangamani2019.statistics import line_within, spread

# Setting of a training -> its name on the page.
DIFFER = {
    "learning_rate": "learning rate",
    "rate": "learning rate",
    "momentum": "momentum",
    "halved_every": "epochs to half the rate",
    "epochs": "epochs",
}
PLACES = (
    *((p, network) for p in table4.PROTOCOLS for network in table4.NETWORKS),
    *((p, network) for p in cifar.PROTOCOLS for network in cifar.SHAPES),
)
Pair = tuple[float, float]


@dataclass(frozen=True)
class Gap:
    """The account of one cell.

    Attributes:
        cell: the pairs that have the paper's measure and a train loss.
        gap: orders of magnitude of the paper's measure, mean and standard deviation over
            the pairs.
        loss: those of the train loss.
        slope: of ln(measure) against ln(train loss) among networks of one batch size.
        others: what differs between the trainings beside the batch size: name -> the
            setting of the small and of the large batch.
    """

    cell: Cell
    gap: Pair
    loss: Pair
    slope: float | None
    others: dict[str, tuple[Any, Any]]

    @property
    def left(self) -> float:
        """The orders that are left if the measure is in proportion to the loss."""
        return self.gap[0] - self.loss[0]

    @property
    def left_by_slope(self) -> float | None:
        """The same with the slope found within the two groups."""
        return None if self.slope is None else self.gap[0] - self.slope * self.loss[0]


def gaps(results: Results) -> dict[tuple[str, str], Gap]:
    """(protocol, network) -> its account, where a pair has all that it needs."""
    found = {}
    for cell in equal_loss.every(results):
        known = _known(cell)
        if known is not None:
            found[cell.protocol, cell.network] = _account(results, known)
    return found


def gaps_table(results: Results, printed: dict[str, float]) -> str:
    """Every cell of Table 4; `printed` holds the paper's orders, by network."""
    made = gaps(results)
    rows = []
    for place in PLACES:
        row = [title_of(*place), f"{printed[place[1]]:.1f}"]
        found = made.get(place)
        rows.append(
            [
                *row,
                *(
                    _row(found)
                    if found
                    else [cifar_cells.state(results, *place)] + [""] * 6
                ),
            ]
        )
    head = ["networks", "the paper's gap", "our gap", "pairs", "train losses"]
    head += ["left, in proportion", "slope within groups", "left, by that slope"]
    return table([*head, "differs besides the batch size"], rows)


def others_text(found: Gap) -> str:
    """Such as "learning rate (0.0001 and 0.001)"; "nothing" where nothing does."""
    said = [
        f"{name} ({_setting(one)} and {_setting(other)})"
        for name, (one, other) in found.others.items()
    ]
    return ", ".join(said) or "nothing"


def plus_minus(pair: Pair) -> str:
    """Orders of magnitude with their standard deviation.

    >>> plus_minus((5.874, 0.2))
    '5.87 ± 0.20'
    """
    return f"{exponent(pair[0])} ± {exponent(pair[1])}"


def _row(found: Gap) -> list[Any]:
    by_slope = found.left_by_slope
    return [
        plus_minus(found.gap),
        len(found.cell.small),
        plus_minus(found.loss),
        exponent(found.left),
        None if found.slope is None else f"{found.slope:.2f}",
        None if by_slope is None else exponent(by_slope),
        others_text(found),
    ]


def _known(cell: Cell) -> Cell | None:
    """The cell with those pairs that have the measure and the loss on both sides."""
    pairs = [
        pair
        for pair in zip(cell.small, cell.large, strict=True)
        if all(log_quotient(one) is not None for one in pair)
    ]
    if not pairs:
        return None
    small, large = map(list, zip(*pairs, strict=True))
    return Cell(cell.protocol, cell.network, cell.sizes, small, large)


def _account(results: Results, cell: Cell) -> Gap:
    within = line_within([points(cell.small), points(cell.large)])
    return Gap(
        cell,
        _orders(cell.compare(MEASURES[0]).log_ratios),
        _orders(cell.compare_losses().log_ratios),
        None if within is None else within.slope,
        _others(results, cell),
    )


def _orders(log_ratios: Sequence[float]) -> Pair:
    return spread([one / math.log(10) for one in log_ratios])


def _others(results: Results, cell: Cell) -> dict[str, tuple[Any, Any]]:
    one, other = (_training(results, cell, size) for size in cell.sizes)
    return {
        DIFFER[key]: (one.get(key), other.get(key))
        for key in DIFFER
        if one.get(key) != other.get(key)
    }


def _training(results: Results, cell: Cell, size: int) -> dict[str, Any]:
    """The settings of a training at this batch size, as they are stored."""
    if cell.protocol in cifar.PROTOCOLS and cell.network in cifar.SHAPES:
        seed = cell.small[0]["seed"]
        name = cifar.name_of(cell.protocol, cell.network, size, seed)
        return results.records[name]["settings"].get("descent", {})
    name = table4.name_of(cell.protocol, cell.network, size)
    return results.records[name]["settings"]


def _setting(value: Any) -> str:
    return "never" if value is None else number(value)
