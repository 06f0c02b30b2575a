"""Gaussian posteriors whose noise is shared by a matrix, by rows and columns, or by none."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.solvers.pac_bayes import ScaleGrid
from flatgauge.solvers.posterior import (
    Block,
    blocks_of,
    entry_block,
    matrix_posteriors,
    tensor_block,
)
from flatgauge.uses.matrices import regular
from flatgauge.vectors import Params

GRID = ScaleGrid(2 ** (1 / 8))
CAP = 10.0


@dataclass(frozen=True)
class Posterior:
    """Noise around the weights, and what it costs to say it.

    Attributes:
        deviation: the standard deviation of every parameter.
        prior: σ_P of every parameter on the grid, where one scale is shared by a tensor;
            else empty.
        kl: KL[Q‖P] in nats, with the prior on the grid.
        equal_kl: the same with σ_P = σ_Q, equation (7).
        tuned: how many scales of the prior were chosen after training.
        price: what the hyperprior costs in nats, ln|grid| for every one of them.
    """

    deviation: Params
    prior: Params
    kl: float
    equal_kl: float
    tuned: int
    price: float


def posterior(
    kind: str, point: Params, diagonal: Params, lam: float, grid: ScaleGrid = GRID
) -> Posterior:
    """The posterior that is best for the second-order bound at λ.

    Args:
        kind: what has a noise scale of its own: every tensor ("matrix", (11)), every row
            and column of a matrix ("node", (17)), or every entry ("entry").
        point: the weights.
        diagonal: diag(H), like the weights.
        lam: λ.
        grid: for the prior's scales.
    """
    deviation, prior, every = {}, {}, []
    for name, weight in point.items():
        h = diagonal[name]
        if kind == "node" and weight.ndim == 2:
            matrices = regular(*weight.shape)
            solved = matrix_posteriors(matrices, h, weight)
            blocks = blocks_of(matrices, solved, (h, weight), lam, CAP, grid)
            variance = matrices.laid_out([one.variance for one in blocks], weight)
        else:
            blocks = [_block(kind, weight, h, lam, grid)]
            variance = blocks[0].variance.to(weight).view_as(weight)
        deviation[name] = variance.sqrt()
        if kind == "matrix":
            prior[name] = _prior(weight, variance, grid)
        every += blocks
    return Posterior(
        deviation,
        prior,
        kl=sum(one.kl for one in every),
        equal_kl=sum(one.equal_kl for one in every),
        tuned=sum(one.tuned for one in every),
        price=grid.price * sum(one.tuned for one in every),
    )


def _block(kind: str, weight: Tensor, h: Tensor, lam: float, grid: ScaleGrid) -> Block:
    if kind == "matrix":
        return tensor_block(weight, float(h.double().sum()), lam, CAP, grid)
    return entry_block(weight, h, lam, CAP, grid)


def _prior(weight: Tensor, variance: Tensor, grid: ScaleGrid) -> Tensor:
    """σ_P of a tensor whose entries share it: nearest on the grid to the best one."""
    mean_square = (weight.square().mean() + variance.mean()).double().cpu()
    return torch.full_like(weight, float((grid.round(mean_square) / 2).exp()))
