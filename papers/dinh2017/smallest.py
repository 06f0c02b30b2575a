"""How flat an orbit can be made: its smallest trace is not 0."""

from __future__ import annotations

import math
from typing import Any

import torch
from scipy.optimize import minimize
from torch import Tensor

import flatgauge as fg
from flatgauge.curvature.dense import dense_eigenvalues, dense_hessian
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import norm, unravel
from papers.dinh2017.eigenvalues import at_zero_loss, minimum
from papers.dinh2017.eigenvalues import settings as training
from papers.dinh2017.flattest_trace import flattest_trace
from papers.dinh2017.networks import normal
from papers.experiment import Context


def settings() -> dict[str, Any]:
    return {
        "networks": [
            training([3, 4, 2], False, [1]),
            # The minima of deeper ones are valleys: rounding decides where in a valley a
            # training stops, so these stand at a minimum by construction.
            at_zero_loss([2, 3, 3, 3], False, [1]),
            at_zero_loss([3, 4, 4, 4, 2], False, [1]),
        ],
        "others": 100,
        "spread": 1.0,
        "seed": 0,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "networks": [
            one_network(minimum(own["seeds"][0], own), own, settings)
            for own in settings["networks"]
        ]
    }


def one_network(
    objective: fg.Objective, own: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    chain, matrix = Chain.of(objective.model()), dense_hessian(objective)
    point, count = objective.parameters, len(chain)
    blocks = split(matrix, [point[layer.weight].numel() for layer in chain.layers])
    traces = [float(block.trace()) for block in blocks]
    closed = count * math.prod(traces) ** (1 / count)
    found = flattest_trace(unravel(matrix.diagonal(), point), chain)
    flattest = objective.at(rescale_layers(point, chain, found.alphas))
    eigenvalues = largest_eigenvalue(blocks, matrix)
    slope = float(norm(objective.gradient()))
    return {
        "widths": own["widths"],
        "gradient": slope,
        "critical": slope <= own["critical"] * eigenvalues["largest eigenvalue"],
        "trace": sum(traces),
        "closed form": closed,
        "found": found.trace,
        "alphas": found.alphas,
        "measured there": float(dense_hessian(flattest).trace()),
        "smallest of others": smallest_of_others(objective, settings) / closed,
        **eigenvalues,
    }


def split(matrix: Tensor, sizes: list[int]) -> list[Tensor]:
    """The diagonal blocks."""
    ends = torch.tensor(sizes).cumsum(0).tolist()
    return [
        matrix[end - size : end, end - size : end]
        for size, end in zip(sizes, ends, strict=True)
    ]


def smallest_of_others(objective: fg.Objective, settings: dict[str, Any]) -> float:
    """The smallest trace of the Hessian at random points of the orbit."""
    chain = Chain.of(objective.model())
    logs = normal(settings["others"], len(chain), seed=settings["seed"])
    logs = settings["spread"] * (logs - logs.mean(1, keepdim=True))
    points = [
        objective.at(rescale_layers(objective.parameters, chain, alphas))
        for alphas in logs.exp().tolist()
    ]
    return min(float(dense_hessian(point).trace()) for point in points)


def largest_eigenvalue(blocks: list[Tensor], matrix: Tensor) -> dict[str, float]:
    """The smallest λmax(D H D) over the orbit, between (Πλ_k)^(1/K) and K times it."""
    count = len(blocks)
    tops = [float(dense_eigenvalues(block)[-1]) for block in blocks]
    lower = math.prod(tops) ** (1 / count)
    sizes = torch.tensor([len(block) for block in blocks])

    def top(logs: Any) -> float:
        free = torch.as_tensor(logs, dtype=torch.float64)
        all_logs = torch.cat([free, -free.sum()[None]])
        scales = (-all_logs).exp().repeat_interleave(sizes)
        return float(dense_eigenvalues(scales[:, None] * matrix * scales)[-1])

    best = minimize(top, [0.0] * (count - 1), method="Nelder-Mead", tol=1e-10)
    return {
        "largest eigenvalue": top([0.0] * (count - 1)),
        "lower bound": lower,
        "smallest largest eigenvalue": float(best.fun),
        "upper bound": count * lower,
    }
