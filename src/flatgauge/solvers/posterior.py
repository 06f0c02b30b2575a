"""Gaussian posteriors around the weights, and the prior on a grid that is nearest.

Each posterior minimizes the second-order bound ½ Σ h s + Σ W² / (2λs) over its variances
s: one for a tensor (Tsuzuku et al. 2019, equation (11), with the factor ½ that belongs
there), a product over rows and columns ((17)), or one for each entry. Where there is no
curvature the variance would be infinite; it is capped in units of the squared weights,
so that rescaling the weights rescales it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.shapes import Float
from flatgauge.solvers.balancing import Balancing, balance, problems_of
from flatgauge.solvers.nearest_prior import (
    NEGLIGIBLE,
    SWEEPS,
    divergence,
    extend,
    log_mean_ratio,
    nearest_on_grid,
    nearest_product,
)
from flatgauge.solvers.pac_bayes import ScaleGrid, gaussian_kl, least_kl
from flatgauge.uses import Matrices


@dataclass(frozen=True)
class Block:
    """The posterior of one tensor or matrix, and what it costs.

    Attributes:
        variance: s of every entry, or of every matrix entry where kernel positions
            share it.
        kl: KL[Q‖P] with the prior's scales on the grid.
        least_kl: the same with the prior's scales anywhere.
        equal_kl: Σ W² / (2s), the divergence at σ_P = σ_Q (equation (7)).
        tuned: how many scales of the prior were chosen.
        resolution: the most that rounding to the grid can add to least_kl.
    """

    variance: Tensor
    kl: float
    least_kl: float
    equal_kl: float
    tuned: int
    resolution: float


def tensor_block(
    weight: Tensor, curvature: float, lam: float, cap: float, grid: ScaleGrid
) -> Block:
    """One variance for the whole tensor: s = √(‖W‖² / (λ Σh)) ≤ c ‖W‖² / n.

    Args:
        weight: W.
        curvature: Σh over the tensor.
        lam: λ.
        cap: c.
        grid: for the prior's σ_P.

    >>> block = tensor_block(torch.ones(4), 1.0, 4.0, 100.0, ScaleGrid(2.0))
    >>> block.variance.round(decimals=9).tolist()
    [1.0, 1.0, 1.0, 1.0]
    """
    count = weight.numel()
    square = float(weight.double().square().sum())
    limit = cap * square / count
    free = math.sqrt(square / (lam * curvature)) if curvature > 0 else math.inf
    smallest, largest = grid.variances
    variance = min(max(min(free, limit), smallest), largest)
    chosen = grid.round(torch.tensor(square / count + variance, dtype=torch.float64))
    return Block(
        variance=torch.full_like(weight, variance, dtype=torch.float64),
        kl=gaussian_kl(square, count, math.exp(float(chosen)), variance),
        least_kl=least_kl(square, count, variance),
        equal_kl=square / (2 * variance),
        tuned=1,
        resolution=count * grid.resolution,
    )


def entry_block(
    weight: Tensor, h: Tensor, lam: float, cap: float, grid: ScaleGrid
) -> Block:
    """One variance for each entry: s = |W| / √(λh) ≤ c W², for biases and gains."""
    square = weight.double().square()
    free = square.sqrt() / (lam * h.double().clamp_min(0)).sqrt()
    # 0/0 is a zero weight without curvature, whose noise may be anything.
    variance = torch.minimum(free.nan_to_num(nan=0.0, posinf=math.inf), cap * square)
    variance = variance.clamp(*grid.variances)
    log_prior = grid.round(square + variance)
    return Block(
        variance=variance,
        kl=float(divergence(square, variance, log_prior).sum()),
        least_kl=float(torch.log1p(square / variance).sum()) / 2,
        equal_kl=float((square / variance).sum()) / 2,
        tuned=weight.numel(),
        resolution=weight.numel() * grid.resolution,
    )


@dataclass(frozen=True)
class MatrixPosterior:
    """The solution of (17) for one matrix, from which every λ's variances follow.

    Attributes:
        square: the mean of W² over kernel positions.
        positions: how many kernel positions share a variance.
        solved: the balanced scales at λ = 1.
    """

    square: Float[Tensor, "rows columns"]
    positions: int
    solved: Balancing

    def log_scales(self, lam: float, cap: float) -> tuple[Tensor, Tensor]:
        """The logarithms of σ_i² and σ'_j², all finite, with s_ij = σ_i² σ'_j².

        Rows obey σ_i² ≤ c · mean_j(W_ij² / σ'_j²), columns likewise; dead ones, which
        (17) would scale without end, take that limit.
        """
        square, solved, log_cap = self.square, self.solved, math.log(cap)
        rows, columns = solved.live_rows, solved.live_columns
        if not bool(rows.any()):
            return self._rank_one(log_cap)
        none = torch.tensor(-math.inf, dtype=torch.float64)
        x = torch.where(rows, solved.row_scale, none) - math.log(lam) / 2
        y = torch.where(columns, solved.column_scale, none)
        limit = log_cap + log_mean_ratio(square, y)
        x = torch.where(rows, torch.minimum(x, limit), x)
        limit = log_cap + log_mean_ratio(square.T, x)
        y = torch.where(columns, torch.minimum(y, limit), y)
        for _ in range(2):
            x = torch.where(torch.isfinite(x), x, log_cap + log_mean_ratio(square, y))
            y = torch.where(torch.isfinite(y), y, log_cap + log_mean_ratio(square.T, x))
        return _fill(x), _fill(y)

    def _rank_one(self, log_cap: float) -> tuple[Tensor, Tensor]:
        """The cap times the best product of row and column scales for W² itself."""
        y = torch.zeros(self.square.shape[1], dtype=torch.float64)
        if not bool((self.square > 0).any()):
            return torch.full_like(self.square[:, 0], -NEGLIGIBLE), y
        for _ in range(SWEEPS):
            x = _fill(log_mean_ratio(self.square, y))
            y = _fill(log_mean_ratio(self.square.T, x))
        return _fill(log_mean_ratio(self.square, y)) + log_cap, y

    def block(self, lam: float, cap: float, grid: ScaleGrid) -> Block:
        """The posterior at λ with the best row and column scales for the prior.

        The prior's σ_P of an entry is a product of a row's and a column's, both on the
        grid: alternating closed forms, first anywhere, then on the grid.
        """
        x, y = self.log_scales(lam, cap)
        rows, columns = self.square.sum(1) > 0, self.square.sum(0) > 0
        square = self.square[rows][:, columns]
        variance = (x[rows, None] + y[columns]).exp()
        kl, least, prior = 0.0, 0.0, (square.sum(1), square.sum(0))
        if square.numel():
            p, q = nearest_product(square + variance, y[columns])
            least = float(divergence(square, variance, p[:, None] + q).sum())
            prior = nearest_on_grid(square + variance, q, grid)
            kl = float(divergence(square, variance, prior[0][:, None] + prior[1]).sum())
        # On rows and columns of zeros the posterior is the prior: negligible, and free.
        p, q = (
            extend(found, kept, grid)
            for found, kept in zip(prior, (rows, columns), strict=True)
        )
        every = (p[:, None] + q).exp()
        every[rows[:, None] & columns] = variance.flatten()
        return Block(
            variance=every,
            kl=self.positions * kl,
            least_kl=self.positions * least,
            equal_kl=self.positions * float((square / variance).sum()) / 2,
            tuned=sum(every.shape),
            resolution=2 * self.positions * square.numel() * grid.resolution,
        )


def matrix_posterior(
    h: Float[Tensor, "rows columns"],
    square: Float[Tensor, "rows columns"],
    positions: int = 1,
) -> MatrixPosterior:
    """Solve (17) for one matrix.

    Args:
        h: clipped curvatures, summed over kernel positions.
        square: squared weights, summed over kernel positions.
        positions: how many positions were summed.

    >>> eye = torch.eye(2, dtype=torch.float64)
    >>> x, y = matrix_posterior(eye + 1, 4 * (eye + 1)).log_scales(4.0, 100.0)
    >>> (x[:, None] + y).exp().round(decimals=12)[0].tolist()
    [1.0, 1.0]
    """
    h, square = h.double(), square.double()
    return MatrixPosterior(square.cpu() / positions, positions, balance(h, square))


def matrix_posteriors(
    matrices: Matrices, h: Tensor, weight: Tensor
) -> list[MatrixPosterior]:
    """One for each separate matrix of a tensor; curvatures are clipped at 0 first."""
    problems = zip(matrices.parts, problems_of(matrices, h, weight), strict=True)
    return [matrix_posterior(*one, part.positions.numel()) for part, one in problems]


def blocks_of(
    matrices: Matrices,
    solved: list[MatrixPosterior],
    curvature_and_weight: tuple[Tensor, Tensor],
    lam: float,
    cap: float,
    grid: ScaleGrid,
) -> list[Block]:
    """The posteriors of a tensor's matrices, and of the entries in none of them."""
    blocks = [part.block(lam, cap, grid) for part in solved]
    if matrices.rest.numel():
        h, weight = (matrices.others(t) for t in curvature_and_weight)
        blocks.append(entry_block(weight, h, lam, cap, grid))
    return blocks


def _fill(scale: Tensor) -> Tensor:
    """Negligible noise where there is no scale: on rows or columns of zeros."""
    known = torch.isfinite(scale)
    lowest = float(scale[known].min()) if bool(known.any()) else 0.0
    return torch.where(known, scale, torch.full_like(scale, lowest - NEGLIGIBLE))
