"""What the stored results say of the paper's statements on Table 4's CIFAR-10 networks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from papers.completeness import ABSENT, IN_PART, REFUTED, REPRODUCED, Check, Finding
from papers.experiment import Results
from papers.rangamani2019 import figure2
from papers.rangamani2019.cause import LITTLE, loss_orders, orders
from papers.rangamani2019.cifar import SHAPES
from papers.rangamani2019.cifar_cells import NOT_YET, cells, sides, state
from papers.rangamani2019.cifar_table4 import agreeing
from papers.rangamani2019.comparison import exponent, printed_orders
from papers.rangamani2019.minima import MEASURES, NETWORK_TITLES, Cell


def order(results: Results) -> Finding:
    """Small-batch minima are the flatter ones."""
    found = []
    for cell in _authors(results):
        one = cell.compare(MEASURES[0])
        found.append((cell, one.small_is_smaller, one.pairs))
    return _counted("the small batch is flatter in", found, results)


def accuracy(results: Results) -> Finding:
    """Small-batch minima generalize better."""
    found = []
    for cell in _authors(results):
        better = sum(
            one["test_accuracy"] > other["test_accuracy"]
            for one, other in zip(cell.small, cell.large, strict=True)
        )
        found.append((cell, better, len(cell.small)))
    return _counted("the small batch is better on test data in", found, results)


def size(results: Results) -> Finding:
    """By as many orders of magnitude as the paper prints."""
    printed = {
        entry["cifar"]: printed_orders(entry) for entry in _table4() if "cifar" in entry
    }
    found = [cell for cell in _authors(results) if cell.compare(MEASURES[0]).pairs]
    if not found:
        return ABSENT, why(results)
    near = [abs(orders(cell) - printed[cell.network]) <= LITTLE for cell in found]
    right = [orders(cell) > 0 for cell in found]
    said = "; ".join(
        f"{NETWORK_TITLES[cell.network]}: {exponent(orders(cell))} (losses "
        f"{exponent(loss_orders(cell))})"
        for cell in found
    )
    words = (
        "orders of magnitude by the paper's measure, beside those of the train losses: "
        f"{said}"
    )
    return _judged(all(near), any(right), found), words + _rest(found, results)


def above(results: Results) -> Finding:
    """Figure 2: the lines of large batches are above those of small ones."""
    found = [
        cell
        for cell in figure2.cells(results)
        if cell.protocol == "authors" and cell.network in SHAPES
    ]
    if not found:
        return ABSENT, why(results)
    counts = [figure2.above(cell, "layer") for cell in found]
    said = "; ".join(
        f"{NETWORK_TITLES[cell.network]}: at {count} of {points} points, "
        f"{len(cell.small)} pairs"
        for cell, (count, points) in zip(found, counts, strict=True)
    )
    every = all(count == points for count, points in counts)
    some = any(count for count, _ in counts)
    words = f"the large batches' mean line is the higher: {said}{_rest(found, results)}"
    # A line may be higher and no steeper: that alone bears out half of the statement.
    steeper = [figure2.steeper(cell, "layer") for cell in found]
    words += f"; it rises more in {sum(steeper)} of {len(found)} networks"
    return _judged(every and all(steeper), some or any(steeper), found), words


def values(results: Results) -> Finding:
    """The printed accuracies and norms themselves."""
    agree, made, printed = agreeing(results, _table4())
    if not made:
        return ABSENT, why(results)
    words = (
        f"of the {printed} printed numbers {made} were made by two networks or more with "
        f"the authors' code's settings, and {agree} agree to two standard deviations"
    )
    if agree == printed:
        return REPRODUCED, words
    return (REFUTED if made == printed and not agree else IN_PART), words


def verdict(results: Results) -> str:
    """The same in a sentence, for the top of the page."""
    said = [find(results) for find in (order, size, accuracy)]
    words = [text for verdict, text in said if verdict != ABSENT]
    if not words:
        return f"Table 4, CIFAR-10: {NOT_YET}."
    return f"Table 4, CIFAR-10, with the authors' code: {'; '.join(words)}."


def why(results: Results) -> str:
    """Why there is no verdict."""
    if not any(key[0] == "authors" for key in sides(results)):
        return f"{NOT_YET}; training on CIFAR-10 needs a GPU"
    return "; ".join(
        f"{NETWORK_TITLES[name]}: {state(results, 'authors', name)}" for name in SHAPES
    )


def _authors(results: Results) -> list[Cell]:
    return [cell for cell in cells(results) if cell.protocol == "authors"]


def _counted(
    what: str, found: list[tuple[Cell, int, int]], results: Results
) -> Finding:
    used = [one for one in found if one[2]]
    if not used:
        return ABSENT, why(results)
    every = all(count == pairs for _, count, pairs in used)
    some = any(count for _, count, _ in used)
    said = ", ".join(
        f"{count} of {pairs} ({NETWORK_TITLES[cell.network]})"
        for cell, count, pairs in used
    )
    cells_used = [cell for cell, _, _ in used]
    words = f"{what} {said} pairs{_rest(cells_used, results)}"
    return _judged(every, some, cells_used), words


def _judged(every: bool, some: bool, found: list[Cell]) -> str:
    """All of it, part of it or nothing; nothing is settled while a network is missing."""
    whole = len(found) == len(SHAPES)
    if every and whole:
        return REPRODUCED
    return IN_PART if every or some or not whole else REFUTED


def _rest(found: list[Cell], results: Results) -> str:
    have = {cell.network for cell in found}
    return "".join(
        f"; {NETWORK_TITLES[name]}: {state(results, 'authors', name)}"
        for name in SHAPES
        if name not in have
    )


def _table4() -> list[dict[str, Any]]:
    path = Path(__file__).with_name("expected.json")
    return json.loads(path.read_text(encoding="utf-8"))["table4"]


CHECKS = {
    "figure 2": Check((), above),
    "cifar order": Check((), order),
    "cifar size": Check((), size),
    "cifar accuracy": Check((), accuracy),
    "cifar values": Check((), values),
}
"""Key in expected.json -> how the verdict follows from the stored results."""
