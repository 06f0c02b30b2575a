"""Theorem 1 beyond one network: wherever one layer feeds another through a ReLU."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain, Layer
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import map_tensors, norm
from papers.dinh2017.networks import convolutional, drawn, mlp, train
from papers.dinh2017.orbit import pooled_images
from papers.experiment import Context

# One hidden layer as in the theorem, under another loss and after training; then models
# that contain such a part.
NETWORKS: list[dict[str, Any]] = [
    {"name": "one hidden layer", "hidden": [32]},
    {"name": "one hidden layer, squared error", "hidden": [32], "loss": "mse"},
    {"name": "one hidden layer, trained", "hidden": [32], "epochs": 30},
    {"name": "one hidden layer, leaky ReLU", "hidden": [32], "slope": 0.1},
    {"name": "one hidden layer, biases", "hidden": [32], "bias": True},
    {"name": "four hidden layers", "hidden": [24] * 4},
    {"name": "four hidden layers, biases", "hidden": [24] * 4, "bias": True},
    {"name": "two convolutions, biases", "channels": [6, 12], "bias": True},
    {"name": "a residual block", "residual": 32},
]


class ResidualNetwork(nn.Module):
    """x ↦ W (x + W₂ relu(W₁ x)): the theorem's network as a part of another one.

    Args:
        features: of the input.
        width: hidden units of the block.
        outputs: of the network.
    """

    def __init__(self, features: int, width: int, outputs: int = 10):
        super().__init__()
        self.block = nn.Sequential(
            nn.Linear(features, width, bias=False, dtype=torch.float64),
            nn.ReLU(),
            nn.Linear(width, features, bias=False, dtype=torch.float64),
        )
        self.head = nn.Linear(features, outputs, bias=False, dtype=torch.float64)

    def forward(self, inputs: Tensor) -> Tensor:
        rows = inputs.flatten(1)
        return self.head(rows + self.block(rows))


def settings(quick: bool) -> dict[str, Any]:
    return {
        "networks": NETWORKS,
        "samples": 300 if quick else 1000,
        "pool": 1 if quick else 2,
        "exponents": [0, -1, -2, -3, -4],
        "seeds": [0] if quick else [0, 1, 2, 3, 4],
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """For every network: each of its pairs of layers, each seed."""
    data = pooled_images(context, "train", settings["samples"], settings["pool"])
    exponents = settings["exponents"]
    return {
        "networks": [
            {
                "network": own["name"],
                **summary(
                    [
                        one
                        for seed in settings["seeds"]
                        for one in pairs(*objective(own, *data, seed), exponents)
                    ]
                ),
            }
            for own in settings["networks"]
        ]
    }


def objective(
    own: dict[str, Any], pixels: Tensor, labels: Tensor, seed: int
) -> tuple[fg.Objective, Chain]:
    """The network with its data, and the layers that can be rescaled."""
    bias = own.get("bias", False)
    if "channels" in own:
        model = convolutional(pixels, own["channels"], seed, bias)
        chain = Chain.of(model)
    elif "residual" in own:
        model = ResidualNetwork(pixels[0].numel(), own["residual"])
        drawn(nn.Sequential(model), seed)
        chain = Chain((Layer("block.0.weight"), Layer("block.2.weight")))
    else:
        widths = [pixels[0].numel(), *own["hidden"], 10]
        model = mlp(widths, seed, bias, slope=own.get("slope", 0.0))
        chain = Chain.of(model)
    inputs = pixels if "channels" in own else pixels.flatten(1)
    model = model.to(inputs)
    if "epochs" in own:
        settings = {"epochs": own["epochs"], "batch": 50, "rate": 3e-3, "seed": seed}
        model = train(model, inputs, labels, **settings)
    if own.get("loss") == "mse":
        targets = F.one_hot(labels, 10).to(inputs)
        return fg.Objective(model, (inputs, targets), loss="mse"), chain
    return fg.Objective(model, (inputs, labels)), chain


def pairs(
    objective: fg.Objective, chain: Chain, exponents: list[float]
) -> list[dict[str, Any]]:
    """Every layer but the last times α, the next one divided by α.

    A tensor that T multiplies by f has its gradient divided by f, so that
    ‖∇L(Tθ)‖² = Σ ‖∇_t L(θ)‖² / f_t² over the tensors t.
    """
    slopes = {name: float(part.norm()) for name, part in objective.gradient().items()}
    ones = map_tensors(torch.ones_like, objective.parameters)
    before, found = objective.value(), []
    for first in range(len(chain) - 1):
        norms, law, change = [], [], 0.0
        for alpha in (10.0**exponent for exponent in exponents):
            alphas = [1.0] * len(chain)
            alphas[first : first + 2] = [alpha, 1 / alpha]
            factors = rescale_layers(ones, chain, alphas)
            twin = objective.at(rescale_layers(objective.parameters, chain, alphas))
            norms.append(float(norm(twin.gradient())))
            law.append(
                math.hypot(*(s / float(factors[n].max()) for n, s in slopes.items()))
            )
            change = max(change, abs(twin.value() / before - 1))
        found.append({"norms": norms, "law": law, "loss change": change})
    step = exponents[-1] - exponents[-2]
    return [
        {**one, "power": math.log10(one["norms"][-1] / one["norms"][-2]) / step}
        for one in found
    ]


def summary(found: list[dict[str, Any]]) -> dict[str, Any]:
    """The worst of all pairs of layers and seeds; the norms of the first of them."""
    return {
        "pairs": len(found),
        "norms": found[0]["norms"],
        "error": max(
            abs(n / e - 1)
            for one in found
            for n, e in zip(one["norms"], one["law"], strict=True)
        ),
        "loss change": max(one["loss change"] for one in found),
        "least growth": min(one["norms"][-1] / one["norms"][0] for one in found),
        "powers": [min(o["power"] for o in found), max(o["power"] for o in found)],
    }
