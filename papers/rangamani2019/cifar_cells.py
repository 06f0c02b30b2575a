"""The networks of CIFAR-10 as stored: those of each batch size, and pairs of equal seeds."""

from __future__ import annotations

from typing import Any

from papers.experiment import Results
from papers.rangamani2019.cifar import PROTOCOLS, SEEDS, SHAPES, sizes
from papers.rangamani2019.minima import Cell

# Ten classes: a network with a lower train accuracy is at no minimum worth a name.
LEAST_ACCURACY = 0.5
NOT_YET = "not run yet"
Network = dict[str, Any]
Side = tuple[str, str, int]


def sides(results: Results) -> dict[Side, dict[int, Network]]:
    """(protocol, network, batch size) -> seed -> network, of the runs that were made."""
    found: dict[Side, dict[int, Network]] = {}
    for name in results:
        if name.startswith("cifar10-"):
            _, protocol, network, size, seed = name.split("-")
            own = found.setdefault((protocol, network, int(size)), {})
            own[int(seed)] = results[name]["networks"][0]
    return found


def trained(network: Network) -> bool:
    """Whether the training went somewhere: its loss is a number, and half is right."""
    known = network["train_loss"] is not None
    return known and network["train_accuracy"] >= LEAST_ACCURACY


def cells(results: Results) -> list[Cell]:
    """Pairs of equal seeds where both networks trained, by protocol and network."""
    made = sides(results)
    found = []
    for protocol in PROTOCOLS:
        for network in SHAPES:
            for quick in (False, True):
                small, large = sizes(quick)
                one = made.get((protocol, network, small), {})
                other = made.get((protocol, network, large), {})
                pairs = [
                    (one[seed], other[seed])
                    for seed in sorted(one)
                    if seed in other and trained(one[seed]) and trained(other[seed])
                ]
                if pairs:
                    first, second = map(list, zip(*pairs, strict=True))
                    found.append(Cell(protocol, network, (small, large), first, second))
    return found


def state(results: Results, protocol: str, network: str) -> str:
    """Why there is no pair of this network, in words.

    >>> state(Results({}), "clean", "vgg16")
    'not run yet'
    """
    made = [
        set(own)
        for key, own in sides(results).items()
        if key[:2] == (protocol, network)
    ]
    if not made:
        return NOT_YET
    shared = len(made) == 2 and made[0] & made[1]
    return "no pair of trained networks" if shared else f"its pairs are {NOT_YET}"


def coverage(results: Results) -> str:
    """How much of what is declared was run, in words.

    >>> coverage(Results({}))
    'not run yet'
    """
    made = sum(len(own) for own in sides(results).values())
    declared = 2 * len(PROTOCOLS) * sum(SEEDS.values())
    if not made:
        return NOT_YET
    return "all run" if made >= declared else f"{made} of {declared} networks run"
