"""Theorem 2: how many eigenvalues of the Hessian can be made as large as one likes."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.curvature.dense import dense_eigenvalues, dense_hessian
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import Params, add, generator, norm, ravel
from papers.dinh2017.networks import convolutional, mlp, normal, settle
from papers.draws import gaussian
from papers.experiment import Context


def settings(
    widths: list[int], bias: bool, seeds: list[int], noise: float = 0.02
) -> dict[str, Any]:
    """Networks trained on the noisy outputs of a teacher of their own shape."""
    return {
        "widths": widths,
        "bias": bias,
        "seeds": seeds,
        "plain": False,
        "samples": 200,
        "noise": noise,
        "start": 0.05,
        "steps": 60,
        # The gradient of a point that counts as critical, and the most negative curvature
        # of one that counts as a minimum, as shares of the largest curvature.
        "critical": 1e-9,
        # Eigenvalues below this share of the largest count as 0.
        "zero": 1e-9,
        "log2 beta": list(range(0, 21, 2)),
        "bound": 100.0,
    }


def at_zero_loss(widths: list[int], bias: bool, seeds: list[int]) -> dict[str, Any]:
    """Networks on their own outputs, which need no training."""
    return {
        **settings(widths, bias, seeds, noise=0.0),
        "plain": True,
        "start": 0.0,
        "steps": 0,
        "zero": 1e-13,
        "log2 beta": list(range(0, 27, 2)),
    }


def convolutions_at_zero_loss(
    side: int, channels: list[int], outputs: int, seeds: list[int]
) -> dict[str, Any]:
    """Convolutions on square inputs, then a linear layer; their own outputs."""
    return {**at_zero_loss([*channels, outputs], False, seeds), "side": side}


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    return {"networks": [one_network(seed, settings) for seed in settings["seeds"]]}


def one_network(seed: int, settings: dict[str, Any]) -> dict[str, Any]:
    objective = minimum(seed, settings)
    matrix = dense_hessian(objective)
    values = dense_eigenvalues(matrix).flip(0)
    top, slope = float(values[0]), float(norm(objective.gradient()))
    zero, rounding = settings["zero"] * top, settings["critical"] * top
    rank = int((values > zero).sum())
    found = {
        "seed": seed,
        "loss": objective.value(),
        "gradient": slope,
        "largest": top,
        "smallest": float(values[-1]),
        "critical": slope <= rounding and float(values[-1]) >= -rounding,
    }
    if not found["critical"] or rank == 0:
        return found
    chain = Chain.of(objective.model())
    sizes = [objective.parameters[layer.weight].numel() for layer in chain.layers]
    blocks = [
        exact_count(objective.parameters, chain, k, matrix, zero)
        for k in range(len(chain))
    ]
    best = max(range(len(chain)), key=lambda k: blocks[k]["exact"])
    return {
        **found,
        "parameters": len(values),
        "rank": rank,
        "last nonzero": float(values[rank - 1]) / top,
        "first zero": float(values[rank:].abs().max()) / top
        if rank < len(values)
        else 0,
        "claimed": rank - min(sizes),
        "guaranteed": max(rank - block["kept"] for block in blocks),
        "exact": blocks[best]["exact"],
        "layers": blocks,
        **along_beta(objective, chain, best, values, settings),
    }


def minimum(seed: int, settings: dict[str, Any]) -> fg.Objective:
    """The teacher, moved away from itself, trained on its noisy outputs."""
    teacher, inputs = untrained(seed, settings)
    with torch.no_grad():
        targets = teacher(inputs)
    noise = settings["noise"] * normal(*targets.shape, seed=seed + 200)
    data = (inputs, targets + targets.std() * noise)
    objective = fg.Objective(teacher, data, loss="mse")
    step = gaussian(objective.parameters, generator(seed + 300))
    start = add(objective.parameters, step, settings["start"])
    return settle(objective.at(start), settings["steps"])


def untrained(seed: int, settings: dict[str, Any]) -> tuple[nn.Module, Tensor]:
    """A network and its inputs; with a "side", the first widths are channels."""
    widths, bias, plain = settings["widths"], settings["bias"], settings["plain"]
    square = [settings["side"]] * 2 if "side" in settings else []
    inputs = 3 * normal(settings["samples"], widths[0], *square, seed=seed + 100)
    if square:
        inner, outputs = widths[1:-1], widths[-1]
        return convolutional(inputs, inner, seed, bias, plain, outputs), inputs
    return mlp(widths, seed, bias, plain), inputs


def stretched(point: Params, chain: Chain, grown: int, beta: float) -> Params:
    """α_k = 1/β for every layer but one, and β^(K-1) for that one."""
    alphas = [1 / beta] * len(chain)
    alphas[grown] = beta ** (len(chain) - 1)
    return rescale_layers(point, chain, alphas)


def exact_count(
    point: Params, chain: Chain, grown: int, matrix: Tensor, zero: float
) -> dict[str, int]:
    """The rank of H_SS, S the parameters that shrink when one layer grows."""
    ones = {name: torch.ones_like(tensor) for name, tensor in point.items()}
    shrinking = ravel(stretched(ones, chain, grown, 2.0)) < 1
    inside = dense_eigenvalues(matrix[shrinking][:, shrinking])
    return {
        "grown": grown + 1,
        "kept": int((~shrinking).sum()),
        "exact": int((inside > zero).sum()),
    }


def along_beta(
    objective: fg.Objective,
    chain: Chain,
    grown: int,
    before: Tensor,
    settings: dict[str, Any],
) -> dict[str, Any]:
    """Count the eigenvalues above a bound M, by the Hessian at the moved points."""
    bound = settings["bound"] * float(before[0])
    kept = objective.parameters[chain.layers[grown].weight].numel()
    betas = [2.0**exponent for exponent in settings["log2 beta"]]
    counts, interlaced = [], []
    for beta in betas:
        point = stretched(objective.parameters, chain, grown, beta)
        after = dense_eigenvalues(dense_hessian(objective.at(point))).flip(0)
        counts.append(int((after > bound).sum()))
        shifted = beta**2 * before[kept:]
        slack = settings["critical"] * beta**2 * float(before[0])
        interlaced.append(bool((after[: len(shifted)] >= shifted - slack).all()))
    return {
        "grown": grown + 1,
        "betas": betas,
        "bound": bound,
        "counts": counts,
        "interlaced": all(interlaced),
    }
