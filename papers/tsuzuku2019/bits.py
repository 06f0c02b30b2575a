"""(24) in bits: what a network costs to describe, by how its noise scales are shared."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import torch

import flatgauge as fg
from flatgauge.vectors import add, generator, multiply
from papers.draws import gaussian
from papers.experiment import Context
from papers.tsuzuku2019.network import CLASSES, data_of, facts, trained
from papers.tsuzuku2019.posteriors import GRID, Posterior, posterior

KINDS = ("matrix", "node", "entry")
BIT = math.log(2)


def bits(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Description lengths of networks of several widths h and depths d.

    At λ = m, the number of samples, λ times (8) is in nats the rise of the cost of the
    labels under noisy weights plus the cost of the weights, if the second order of the
    loss were all of it. It is not, so λ is chosen among some multiples of m.
    """
    networks = [
        _described(
            context, {**settings["network"], "widths": [width] * depth}, settings
        )
        for width, depth in settings["shapes"]
    ]
    return {"grid": GRID.count, "networks": networks}


def _described(
    context: Context, network: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    model, data = trained(context, network), data_of(context, network)
    objective = fg.Objective(model, data)
    diagonal = fg.hessian_diagonal(objective, "exact").values
    samples, point = len(data[1]), objective.parameters

    def described(kind: str, factor: float) -> dict[str, Any]:
        found = posterior(kind, point, diagonal, factor * samples)
        labels = samples * _noisy_loss(objective, found, settings) / BIT
        return {
            "factor": factor,
            "tuned": found.tuned,
            "weights": found.kl / BIT,
            "weights_equal": found.equal_kl / BIT,
            "hyperprior": found.price / BIT,
            "labels": labels,
            "total": (found.kl + found.price) / BIT + labels,
        }

    kinds = {}
    for kind in KINDS:
        tried = [described(kind, factor) for factor in settings["factors"]]
        kinds[kind] = {
            "at_m": tried[0],
            **min(tried, key=lambda one: one["total"]),
        }
    sizes = [one.numel() for one in point.values()]
    return {
        "width": network["widths"][0],
        "depth": len(network["widths"]),
        "matrices": len(sizes),
        "network": facts(objective, *data),
        "floats": 32 * sum(sizes),
        "labels_alone": samples * math.log2(CLASSES),
        "kinds": kinds,
    }


@torch.no_grad()
def _noisy_loss(
    objective: fg.Objective, found: Posterior, settings: dict[str, Any]
) -> float:
    """The mean cross-entropy over draws from the posterior."""
    random, point = generator(settings["seed"]), objective.parameters
    return fmean(
        objective.at(
            add(point, multiply(found.deviation, gaussian(point, random)))
        ).value()
        for _ in range(settings["draws"])
    )


def growth(first: dict[str, Any], last: dict[str, Any], kind: str) -> float:
    """The exponent of the number of tuned scales in the width, between two networks."""
    more = last["kinds"][kind]["tuned"] / first["kinds"][kind]["tuned"]
    return math.log(more) / math.log(last["width"] / first["width"])
