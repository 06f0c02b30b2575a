"""ε-sharpness beside its approximation λmax ε²/(2(1+L)), and beside a constant network."""

from __future__ import annotations

import math
from typing import Any

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import norm
from papers.dinh2017.eigenvalues import minimum
from papers.dinh2017.eigenvalues import settings as small_network
from papers.dinh2017.orbit import trained
from papers.experiment import Context


def settings(quick: bool) -> dict[str, Any]:
    """A small network at a critical point, and one that was trained on images."""
    return {
        "small": small_network([3, 4, 2], False, [1]),
        "images": {
            "convolutions": False,
            "hidden": [16],
            "bias": False,
            "pool": 1 if quick else 2,
            "samples": 300 if quick else 1000,
            "epochs": 60,
            "batch": 50,
            "rate": 3e-3,
            "seed": 0,
        },
        "alphas": [1.0, 0.1] if quick else [1.0, 0.1, 0.01],
        "exponents": [-4, -2, 0] if quick else [k / 2 for k in range(-10, 2)],
        "constant": [1e-2] if quick else [1e-3, 1e-2, 1e-1],
        "tolerance": 1e-6,
        "steps": 50 if quick else 200,
        "seed": 0,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    small = minimum(settings["small"]["seeds"][0], settings["small"])
    large, _, _ = trained(context, settings["images"])
    return {
        "networks": {
            "small": one_network(small, settings),
            "images": one_network(large, settings),
        },
        "constant": [
            beside_constant(large, epsilon, settings)
            for epsilon in settings["constant"]
        ],
    }


def one_network(objective: fg.Objective, settings: dict[str, Any]) -> dict[str, Any]:
    """The curve at the point itself and at twins (αθ₁, θ₂/α)."""
    epsilons = [10.0**exponent for exponent in settings["exponents"]]
    return {
        "loss": objective.value(),
        "gradient": float(norm(objective.gradient())),
        "epsilons": epsilons,
        "curves": [
            {
                "alpha": alpha,
                "points": sharpness(rescaled(objective, alpha), epsilons, settings),
            }
            for alpha in settings["alphas"]
        ],
    }


def rescaled(objective: fg.Objective, alpha: float) -> fg.Objective:
    """The twin (αθ₁, θ₂/α) of a network with one hidden layer."""
    chain = Chain.of(objective.model())
    return objective.at(rescale_layers(objective.parameters, chain, (alpha, 1 / alpha)))


def sharpness(
    objective: fg.Objective, epsilons: list[float], settings: dict[str, Any]
) -> list[dict[str, Any]]:
    """At each ε: the measured rise, and the two terms of Taylor's formula."""
    tol, steps = settings["tolerance"], settings["steps"]
    requests = [
        f"epsilon-sharpness[epsilon={epsilon!r},tol={tol!r},steps={steps}]"
        for epsilon in epsilons
    ]
    report = fg.measure(objective, *requests, seed=settings["seed"])
    return [
        {
            "value": one.value,
            "trusted": one.status.trusted,
            "quadratic": one.details.get("quadratic"),
            "linear": one.details.get("linear"),
        }
        for one in report.measurements.values()
    ]


def beside_constant(
    objective: fg.Objective, epsilon: float, settings: dict[str, Any]
) -> dict[str, Any]:
    """At the twin with ‖αθ₁‖ = ε, whose ball holds the network that is 0 everywhere.

    So the ε-sharpness is at least (ln 10 - L) / (1 + L), ln 10 being the cross-entropy of
    ten equal outputs.
    """
    first = Chain.of(objective.model()).layers[0].weight
    alpha = epsilon / float(objective.parameters[first].norm())
    loss = objective.value()
    (own,) = sharpness(objective, [epsilon], settings)
    (twin,) = sharpness(rescaled(objective, alpha), [epsilon], settings)
    return {
        "epsilon": epsilon,
        "alpha": alpha,
        "bound": (math.log(10) - loss) / (1 + loss),
        "before": own["value"],
        "after": twin["value"],
        "trusted": own["trusted"],
        "trusted after": twin["trusted"],
    }
