"""What we found for the rankings of minima."""

from __future__ import annotations

import itertools
from typing import Any

from papers.dinh2017.ranking import MEASURES, RANKED_BY, order, spectral_norm, stays
from papers.dinh2017.several_minima import MOVES
from papers.dinh2017.verdicts import Finding, verdict
from papers.experiment import Results
from papers.page import number

RESCALED, RADIAL, STANDARDIZED, WHITENED = MOVES


def ranking(results: Results) -> Finding:
    found = results["ranking"]
    pairs = [
        [spectral_norm(found[time][found[which]]) for which in ("flat", "sharp")]
        for time in ("before", "after")
    ]
    words = "{} and {} before, {} and {} after".format(
        *(number(value) for pair in pairs for value in pair)
    )
    return words, verdict(pairs[0][0] < pairs[0][1] and pairs[1][0] > pairs[1][1])


def ranking_several(results: Results) -> Finding:
    swapped, decided = pairs_swapped(results, RADIAL, RANKED_BY)
    rescaled, pairs = pairs_swapped(results, RESCALED, RANKED_BY)
    count = len(results["several-minima"]["networks"])
    orders = results["several-minima"]["orders"]
    reached = sum(one["asked"] == one["measured"] for one in orders)
    words = (
        f"of the pairs of {count} minima, radial maps put {swapped} of {decided} in the "
        f"opposite order, rescaled layers {rescaled} of {pairs}; of {len(orders)} random "
        f"orders, radial maps made {reached}"
    )
    every = reached == len(orders) and swapped == decided and rescaled == pairs
    return words, verdict(decided > 0 < pairs and every)


def pairs_swapped(results: Results, move: str, name: str) -> tuple[int, int]:
    """How many pairs a measure ranks in the opposite order, of those it can decide."""
    found = results["several-minima"]
    before, after = found["before"], found["moves"][move]["values"]
    swapped = decided = 0
    for one, other in itertools.combinations(range(len(before)), 2):
        orders = [
            order(values[one][name], values[other][name]) for values in (before, after)
        ]
        if None not in orders:
            decided += 1
            swapped += orders[0] != orders[1]
    return swapped, decided


def keeps(results: Results, move: str, name: str) -> bool:
    """Whether every minimum has the value that it had before the move."""
    found = results["several-minima"]
    pairs = zip(found["before"], found["moves"][move]["values"], strict=True)
    return all(valued(a[name], b[name]) and stays(a[name], b[name]) for a, b in pairs)


def valued(*found: dict[str, Any]) -> bool:
    return all(one["value"] is not None for one in found)


def keepers(results: Results, move: str) -> list[str]:
    """The measures that keep every value under a move."""
    return [name for name in MEASURES if keeps(results, move, name)]
