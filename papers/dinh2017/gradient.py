"""Theorem 1: along (αθ₁, θ₂/α) the gradient grows without bound."""

from __future__ import annotations

import math
from typing import Any

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import norm
from papers.dinh2017.networks import mlp
from papers.dinh2017.orbit import flat_images
from papers.experiment import Context


def settings(quick: bool) -> dict[str, Any]:
    return {
        "hidden": 24 if quick else 32,
        "samples": 500 if quick else 1000,
        "exponents": [0, -0.5, -1, -1.5, -2, -2.5, -3, -3.5, -4],
        "seed": 0,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """At a random point, since the theorem asks only for a gradient that is not 0."""
    inputs, labels = flat_images(context, "train", settings["samples"])
    model = mlp([inputs.shape[1], settings["hidden"], 10], settings["seed"]).to(inputs)
    objective, chain = fg.Objective(model, (inputs, labels)), Chain.of(model)
    first, second = (float(part.norm()) for part in objective.gradient().values())
    alphas = [10.0**exponent for exponent in settings["exponents"]]
    points = [
        rescale_layers(objective.parameters, chain, (alpha, 1 / alpha))
        for alpha in alphas
    ]
    norms = [float(norm(objective.at(point).gradient())) for point in points]
    law = [math.hypot(first / alpha, alpha * second) for alpha in alphas]
    return {
        "alphas": alphas,
        "norms": norms,
        "law": law,
        "error": max(abs(n / e - 1) for n, e in zip(norms, law, strict=True)),
        "first layer": first,
        "second layer": second,
        "limit of alpha times norm": norms[-1] * alphas[-1],
    }
