"""Supplement E: gradient and Hessian along the orbit, against D_α ∇L and D_α H D_α."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import map_tensors, ravel
from papers.dinh2017.eigenvalues import (
    at_zero_loss,
    convolutions_at_zero_loss,
    untrained,
)
from papers.dinh2017.networks import normal
from papers.experiment import Context


def settings() -> dict[str, Any]:
    """Networks at random points: the formulas ask for no minimum."""
    return {
        "networks": {
            "one hidden layer": at_zero_loss([3, 4, 2], False, [0]),
            "four layers": at_zero_loss([3, 4, 4, 4, 2], False, [0]),
            "four layers, biases": at_zero_loss([3, 4, 4, 4, 2], True, [0]),
            "convolutions": convolutions_at_zero_loss(7, [1, 3, 3], 2, [0]),
        },
        "points": 5,
        "spread": 1.0,
        "seed": 0,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "networks": {
            name: one_network(own, settings)
            for name, own in settings["networks"].items()
        }
    }


def one_network(own: dict[str, Any], settings: dict[str, Any]) -> dict[str, float]:
    """The largest errors over random α with Π α_k = 1, relative to the largest entry."""
    seed = settings["seed"]
    model, inputs = untrained(seed, own)
    targets = normal(len(inputs), own["widths"][-1], seed=seed + 1)
    objective = fg.Objective(model, (inputs, targets), loss="mse")
    chain = Chain.of(objective.model())
    gradient, hessian = ravel(objective.gradient()), dense_hessian(objective)
    ones = map_tensors(torch.ones_like, objective.parameters)
    logs = normal(settings["points"], len(chain), seed=seed + 2)
    logs = settings["spread"] * (logs - logs.mean(1, keepdim=True))
    errors = []
    for alphas in logs.exp().tolist():
        twin = objective.at(rescale_layers(objective.parameters, chain, alphas))
        d = 1 / ravel(rescale_layers(ones, chain, alphas))
        errors.append(
            (
                apart(ravel(twin.gradient()), d * gradient),
                apart(dense_hessian(twin), d[:, None] * hessian * d),
            )
        )
    return {
        "parameters": len(gradient),
        "gradient": max(error for error, _ in errors),
        "hessian": max(error for _, error in errors),
    }


def apart(found: Tensor, expected: Tensor) -> float:
    return float((found - expected).abs().max() / expected.abs().max())
