"""The small float64 networks of these experiments, and how they are trained."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.shapes import Float
from flatgauge.vectors import add, generator, ravel, unravel


def mlp(
    widths: list[int],
    seed: int,
    bias: bool = False,
    plain: bool = False,
    slope: float = 0.0,
) -> nn.Sequential:
    """A ReLU network, or one with a slope left of 0; see `drawn` for its parameters."""
    modules: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layer = nn.Linear(inputs, outputs, bias=bias, dtype=torch.float64)
        modules += [layer, nn.LeakyReLU(slope) if slope else nn.ReLU()]
    return drawn(nn.Sequential(*modules[:-1]), seed, plain)


def convolutional(
    pixels: Float[Tensor, "samples channels height width"],
    channels: list[int],
    seed: int,
    bias: bool = False,
    plain: bool = False,
    outputs: int = 10,
) -> nn.Sequential:
    """Convolutions 3 x 3 with stride 2 and ReLU, then a linear layer; drawn as `mlp`."""
    modules: list[nn.Module] = []
    for before, after in itertools.pairwise([pixels.shape[1], *channels]):
        layer = nn.Conv2d(before, after, 3, 2, bias=bias, dtype=torch.float64)
        modules += [layer, nn.ReLU()]
    modules.append(nn.Flatten())
    with torch.no_grad():
        features = nn.Sequential(*modules)(pixels[:1].double()).shape[1]
    modules.append(nn.Linear(features, outputs, bias=bias, dtype=torch.float64))
    return drawn(nn.Sequential(*modules), seed, plain)


def drawn(model: nn.Sequential, seed: int, plain: bool = False) -> nn.Sequential:
    """The model with normal parameters; weights times sqrt(2 / inputs) if not plain."""
    random = generator(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            draw = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
            scaled = parameter.dim() > 1 and not plain
            inputs = parameter[0].numel()
            parameter.copy_(draw * (2 / inputs) ** 0.5 if scaled else draw)
    return model


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def train(
    model: nn.Module,
    inputs: Tensor,
    labels: Tensor,
    *,
    epochs: int,
    batch: int,
    rate: float,
    seed: int,
) -> nn.Module:
    """Adam for a fixed number of epochs, the order of the samples from the seed."""
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    random = generator(seed)
    for _ in range(epochs):
        for rows in torch.randperm(len(labels), generator=random).split(batch):
            optimizer.zero_grad()
            F.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            optimizer.step()
    return model


def accuracy(model: nn.Module, inputs: Tensor, labels: Tensor) -> float:
    with torch.no_grad():
        return float((model(inputs).argmax(1) == labels).double().mean())


def settle(objective: fg.Objective, steps: int) -> fg.Objective:
    """Newton's method with |eigenvalues| and backtracking, down to a critical point.

    Directions of (almost) no curvature, among them the network's own symmetries, are
    left alone.
    """
    for _ in range(steps):
        slope = ravel(objective.gradient())
        values, vectors = torch.linalg.eigh(dense_hessian(objective))
        curved = values.abs() > 1e-9 * values.abs().max()
        along = vectors[:, curved]
        step = -along @ (along.T @ slope / values[curved].abs())
        before, size = objective.value(), 1.0
        while size > 1e-8:
            change = unravel(size * step, objective.parameters)
            moved = objective.at(add(objective.parameters, change))
            if moved.value() < before:
                break
            size /= 2
        else:
            return objective
        objective = moved
    return objective
