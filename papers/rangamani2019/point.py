"""Small networks at random points, and what the propositions are about."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.vectors import Params, generator, ravel
from papers.networks import build


def at_random(
    settings: dict[str, Any],
    bias: bool,
    minimum: bool = False,
    targets_scale: float = 1.0,
) -> fg.Objective:
    """A network with normally distributed parameters in float64, and squared errors.

    Args:
        settings: widths, samples, seed.
        bias: whether it has biases.
        minimum: whether the targets are its own outputs, so that the loss is 0, and not
            random ones.
        targets_scale: what random targets are multiplied by.
    """
    widths, random = settings["widths"], generator(settings["seed"])
    model = build({"kind": "fully connected", "widths": widths}, bias).double()
    with torch.no_grad():
        for one in model.parameters():
            one.copy_(torch.randn(one.shape, generator=random, dtype=one.dtype))
        inputs, targets = (
            torch.randn(
                settings["samples"], width, generator=random, dtype=torch.float64
            )
            for width in (widths[0], widths[-1])
        )
        targets = model(inputs) if minimum else targets_scale * targets
    return fg.Objective(model, (inputs, targets), "mse")


def alphas(count: int, spread: float, random: torch.Generator) -> list[float]:
    """Positive factors with product 1; their logarithms are as wide as `spread`."""
    logs = spread * torch.randn(count, generator=random, dtype=torch.float64)
    return (logs - logs.mean()).exp().tolist()


def biases_of(chain: Chain) -> list[str]:
    return [layer.bias for layer in chain.layers if layer.bias is not None]


def inner(point: Params, left: Params, right: Params) -> float:
    """g = Σ ⟨η_i, ξ_i⟩ / ‖W_i‖² over weights and biases: Propositions 2.3 and 2.5."""
    return sum(
        float((left[name] * right[name]).sum() / tensor.square().sum())
        for name, tensor in point.items()
    )


def log_ratio(left: Params, right: Params, name: str) -> Tensor:
    """log ⟨left, right⟩ / ‖left‖² of one tensor, the logarithm of its factor."""
    return ((left[name] * right[name]).sum() / left[name].square().sum()).log()


def relative(found: Params, expected: Params) -> float:
    return float((ravel(found) - ravel(expected)).norm() / ravel(expected).norm())
