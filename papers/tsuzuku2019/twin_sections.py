"""The section on twins: the same function with norms folded, or behind a rescaling."""

from __future__ import annotations

import math
import statistics
from typing import Any

from flatgauge.vocabulary import Association
from papers.experiment import Results
from papers.page import NOT_RUN, number, table
from papers.tsuzuku2019.generalization import Network, Order, order, pairs, value
from papers.tsuzuku2019.random_labels import MEASURES

TWINS = {
    "folded": "norms folded",
    "rescaled": "rescaled at random",
    "statistics": "statistics taken anew",
}
READING = """\
Of one network for each share of random labels three twins were measured. *Norms folded* and
*rescaled at random* compute the same function ({moved}). *Statistics taken anew*, from all
training images, is another function: its outputs move by {other}. The table has the factor
by which a measure changes: the geometric mean over the networks and, in brackets, its
extremes. A measure that tells of the function alone has 1 in the first two columns.
"""
CORRELATIONS = """\
Pearson's correlation with the accuracy gap over the same {count} networks, as they were
trained and behind the random rescaling:
"""


def twins(results: Results) -> str:
    """What the twins of the networks that have some show."""
    networks = [
        one
        for _, found in pairs(results)
        for one in found
        if "twins" in one and value(one, MEASURES[0])
    ]
    if not networks:
        return f"{NOT_RUN.capitalize()} yet.\n"
    same = [
        one["twins"][twin]["outputs"] for one in networks for twin in list(TWINS)[:2]
    ]
    other = [one["twins"]["statistics"]["outputs"] for one in networks]
    parts = [
        READING.format(
            moved=f"outputs change by {number(max(same), 2)} at most",
            other=f"{number(min(other), 2)} to {number(max(other), 2)}",
        ),
        table(
            ["measure", *TWINS.values()],
            [
                [f"`{one}`", *(_factor(networks, one, twin) for twin in TWINS)]
                for one in MEASURES
            ],
        ),
    ]
    trained, moved = order(networks), order([_behind(one) for one in networks])
    if trained is not None and moved is not None:
        parts += [
            CORRELATIONS.format(count=len(networks)),
            table(
                ["measure", "as trained", "rescaled"],
                [
                    [f"`{one}`", _pearson(trained, one), _pearson(moved, one)]
                    for one in MEASURES
                ],
            ),
        ]
    return "\n".join(parts)


def _behind(network: Network) -> Network:
    """The network with the measures of its rescaled twin."""
    return {**network, "measures": network["twins"]["rescaled"]["measures"]}


def _pearson(found: Order, request: str) -> str:
    return found.found[request][Association.PEARSON].shown


def _factor(networks: list[Network], request: str, twin: str) -> str:
    """How much a measure changes; differences where it is a logarithm."""
    logs = []
    for one in networks:
        own, other = value(one, request), value(_twin(one, twin), request)
        if own is None or other is None:
            continue
        if request == "spectral-norm-product":
            logs.append(other - own)
        elif own > 0 and other > 0:
            logs.append(math.log(other / own))
    if not logs:
        return "–"
    middle, low, high = (
        math.exp(one) for one in (statistics.mean(logs), min(logs), max(logs))
    )
    return f"{middle:.3g} ({low:.3g} to {high:.3g})"


def _twin(network: Network, twin: str) -> dict[str, Any]:
    return network["twins"][twin]
