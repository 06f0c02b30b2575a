"""The small float64 networks of these experiments, and how they are trained."""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.vectors import add, generator, ravel, unravel


def mlp(
    widths: list[int], seed: int, bias: bool = False, plain: bool = False
) -> nn.Sequential:
    """A ReLU network with normal parameters; weights times sqrt(2 / inputs) if not plain."""
    modules: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layer = nn.Linear(inputs, outputs, bias=bias, dtype=torch.float64)
        modules += [layer, nn.ReLU()]
    model = nn.Sequential(*modules[:-1])
    random = generator(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            draw = torch.randn(parameter.shape, generator=random, dtype=torch.float64)
            scaled = parameter.dim() > 1 and not plain
            parameter.copy_(draw * (2 / parameter.shape[1]) ** 0.5 if scaled else draw)
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
