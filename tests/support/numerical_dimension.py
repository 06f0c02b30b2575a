"""The diagonal symmetries of a small network, counted by linear algebra alone."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from flatgauge.symmetry.graph import floating
from flatgauge.vectors import generator


def numerical_dimension(
    model: nn.Module,
    args: tuple[Any, ...],
    seed: int = 0,
    threshold: float = 1e-9,
) -> tuple[int, int]:
    """Count diagonal symmetries of a small network by linear algebra alone.

    A rescaling with exponents e preserves the outputs to first order at θ if
    (∂f/∂θ · θ) e = 0. The rows of this matrix are stacked over random θ until there are
    twice as many as columns, since at a single θ a shift of a bias looks like a
    rescaling too. No rule, no trace and no label enters: this is the independent check
    of `symmetries`.

    Args:
        model: The network, in the mode in which it is to be judged.
        args: Its inputs.
        seed: Of the random numbers.
        threshold: Singular values below this, relative to the largest, count as zero.

    Returns:
        The dimension of the group that moves parameters alone, and how many of these
        directions rescale a single entry on which the outputs do not depend at all.
    """
    network = copy.deepcopy(model).double()
    names = dict(network.named_parameters())
    random = generator(seed)
    inputs = tuple(x.double() if x.is_floating_point() else x for x in args)
    size = sum(tensor.numel() for tensor in names.values())
    rows: list[Tensor] = []
    while len(rows) < 2 * size:
        theta = {
            name: torch.randn(tensor.shape, generator=random, dtype=torch.float64)
            for name, tensor in names.items()
        }
        leaves = {name: tensor.requires_grad_() for name, tensor in theta.items()}
        result = torch.func.functional_call(network, leaves, inputs)
        entries = torch.cat([tensor.reshape(-1) for tensor in floating(result)])
        for entry in entries:
            gradients = torch.autograd.grad(
                entry, list(leaves.values()), retain_graph=True, allow_unused=True
            )
            pairs = zip(gradients, leaves.values(), strict=True)
            row = [
                torch.zeros(leaf.numel()) if g is None else (g * leaf).reshape(-1)
                for g, leaf in pairs
            ]
            rows.append(torch.cat(row).detach())
    matrix = torch.stack(rows).numpy()
    lengths = np.linalg.norm(matrix, axis=1, keepdims=True)
    matrix = matrix / np.where(lengths > 0, lengths, 1.0)
    values = np.linalg.svd(matrix, compute_uv=False)
    rank = int((values > threshold * values[0]).sum())
    dead = int((np.abs(matrix).max(axis=0) < threshold).sum())
    return matrix.shape[1] - rank, dead
