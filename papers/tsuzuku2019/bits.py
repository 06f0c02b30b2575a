"""(24) in bits: what a network costs to describe, by how its noise scales are shared."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import torch

import flatgauge as fg
from flatgauge.solvers.pac_bayes import ScaleGrid
from flatgauge.vectors import add, generator, multiply
from papers.draws import gaussian
from papers.experiment import Context
from papers.tsuzuku2019.network import CLASSES, data_of, facts, trained
from papers.tsuzuku2019.posteriors import Posterior, posterior

KINDS = ("matrix", "node", "entry")
BIT = math.log(2)
GRIDS = tuple(ScaleGrid(ratio) for ratio in (2 ** (1 / 8), 2.0, 16.0, 256.0))


def bits(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Description lengths of networks of several widths h and depths d.

    At λ = m, the number of samples, λ times (8) is in nats the rise of the cost of the
    labels under noisy weights plus the cost of the weights, if the second order of the
    loss were all of it. It is not, so λ is chosen among some multiples of m, and the
    grid of the prior's scales among a few: a coarse one costs less, but fits less.
    """
    networks = [
        _described(
            context, {**settings["network"], "widths": [width] * depth}, settings
        )
        for width, depth in settings["shapes"]
    ]
    return {"grids": [grid.count for grid in GRIDS], "networks": networks}


def _described(
    context: Context, network: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    model, data = trained(context, network), data_of(context, network)
    objective = fg.Objective(model, data)
    diagonal = fg.hessian_diagonal(objective, "exact").values
    samples, point = len(data[1]), objective.parameters

    def described(kind: str, factor: float) -> list[dict[str, Any]]:
        """One description for each grid; the noise is the same with all of them."""
        lam = factor * samples
        found = [(grid, posterior(kind, point, diagonal, lam, grid)) for grid in GRIDS]
        labels = samples * _noisy_loss(objective, found[0][1], settings) / BIT
        return [
            {
                "factor": factor,
                "grid": grid.count,
                "tuned": one.tuned,
                "weights": one.kl / BIT,
                "weights_equal": one.equal_kl / BIT,
                "hyperprior": one.price / BIT,
                "labels": labels,
                "total": (one.kl + one.price) / BIT + labels,
            }
            for grid, one in found
        ]

    kinds = {}
    for kind in KINDS:
        tried = [one for f in settings["factors"] for one in described(kind, f)]
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
