"""The nearest prior: scales of rows and columns for a given posterior.

For posterior variances s and weights W, the divergence from a prior of variance
e^{p_i + q_j} is least where the means of (W² + s) e^{−p_i−q_j} over every row and every
column are 1: alternating closed forms reach it, anywhere or on a grid.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flatgauge.solvers.pac_bayes import ScaleGrid

# How much smaller, in ln s, the noise on a row or column of zeros is than on the others.
NEGLIGIBLE = 60.0
SWEEPS = 500


def divergence(square: Tensor, variance: Tensor, log_prior: Tensor) -> Tensor:
    """KL[N(w, s) ‖ N(0, σ_P²)] of each entry."""
    log_ratio = variance.log() - log_prior
    spread = torch.expm1(log_ratio) - log_ratio
    return 0.5 * (square * torch.exp(-log_prior) + spread)


def log_mean_ratio(square: Tensor, y: Tensor) -> Tensor:
    """The ln of mean_j(W_ij² / σ'_j²), over the columns with a finite scale."""
    known = torch.isfinite(y)
    if not bool(known.any()):
        return torch.full_like(square[:, 0], -math.inf)
    terms = square[:, known].log() - y[known]
    return torch.logsumexp(terms, 1) - math.log(int(known.sum()))


def nearest_product(total: Tensor, q: Tensor) -> tuple[Tensor, Tensor]:
    """The minimum of Σ p_i + q_j + total_ij e^{−p_i−q_j}, by closed-form sweeps."""
    p = log_mean_ratio(total, q)
    for _ in range(SWEEPS):
        before = q
        q = log_mean_ratio(total.T, p)
        p = log_mean_ratio(total, q)
        if float((q - before).abs().max()) < 1e-12:
            break
    return p, q


def nearest_on_grid(total: Tensor, q: Tensor, grid: ScaleGrid) -> tuple[Tensor, Tensor]:
    """The same with p and q on the grid, from the minimum's q.

    Only p + q matters, so q may be shifted first; the shift that brings all of q nearest
    to the grid (the circular mean of what is left over) does not depend on the order of
    the columns, nor on scaling them by powers of the ratio.
    """
    angle = 2 * math.pi * q / grid.spacing
    mean = torch.atan2(angle.sin().mean(), angle.cos().mean())
    q = q - mean * grid.spacing / (2 * math.pi)
    # Rows and columns share the range of the grid.
    middle = (log_mean_ratio(total, q).mean() - q.mean()) / (2 * grid.spacing)
    q = (torch.round(q / grid.spacing) + torch.floor(middle)) * grid.spacing
    reach = grid.steps * grid.spacing
    q = q.clamp(-reach, reach)
    p = grid.round(log_mean_ratio(total, q).exp())
    for _ in range(SWEEPS):
        before = q
        q = grid.round(log_mean_ratio(total.T, p).exp())
        p = grid.round(log_mean_ratio(total, q).exp())
        if torch.equal(q, before):
            break
    return p, q


def extend(log_prior: Tensor, kept: Tensor, grid: ScaleGrid) -> Tensor:
    """The prior's scales of all rows or columns, negligible for those of zeros."""
    lowest = float(log_prior.min()) if log_prior.numel() else 0.0
    steps = math.floor((lowest - NEGLIGIBLE) / grid.spacing)
    small = max(steps, -grid.steps) * grid.spacing
    every = torch.full(kept.shape, small, dtype=torch.float64)
    every[kept] = log_prior
    return every
