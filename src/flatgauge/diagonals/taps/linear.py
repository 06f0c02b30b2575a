"""Linear layers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flatgauge.diagonals.taps.tap import Tap, chunks
from flatgauge.vectors import Params


@dataclass
class LinearTap(Tap):
    """x Wᵀ + b over samples and positions; `transposed` for x W."""

    input: Tensor
    transposed: bool = False
    squared: Tensor | None = field(default=None, init=False)

    def sample_dims(self, ndim: int) -> Iterable[int]:
        """All but that of the features."""
        return range(ndim - 1)

    def add(self, slopes: Tensor, weights: Tensor) -> None:
        """With one position per sample the pulls share x²: only their δ² are added."""
        pulls, count = weights.shape[:2]
        if slopes[0].numel() > count * slopes.shape[-1]:
            super().add(slopes, weights)
            return
        d = slopes.reshape(pulls, count, 1, -1)
        weighted = (d.square() * weights[..., None]).sum(0)
        self.squared = weighted if self.squared is None else self.squared + weighted

    def total(self) -> Params:
        """(Σ_pulls δ²)ᵀ x² in one product, or what was added."""
        weighted = self.squared
        if weighted is None:
            return self.sums
        found: Params = {}
        if "bias" in self.names:
            found[self.names["bias"]] = weighted.sum(0)
        if "weight" in self.names:
            x = self.input.reshape(weighted.shape[0], -1)
            squares = weighted.permute(1, 2, 0) @ x.square()
            found[self.names["weight"]] = squares.mT if self.transposed else squares
        return found

    def squares(self, role: str, slope: Tensor, weights: Tensor) -> Tensor:
        """Chunks of Σ_t δ_t x_tᵀ."""
        count = weights.shape[0]
        d = self.layout.samples_first(slope).flatten(1, -2)
        if role == "bias":
            return weights.mT @ d.sum(1).square()
        x = self.layout.samples_first(self.input).flatten(1, -2)
        total = d.new_zeros(weights.shape[1], d.shape[2], x.shape[2])
        for rows in chunks(count, d.shape[2] * x.shape[2], d.device):
            gradients = d[rows].mT @ x[rows]
            total += torch.einsum("nw,nab->wab", weights[rows], gradients.square_())
        return total.mT if self.transposed else total


def linear(input, weight, bias=None) -> Tap | None:
    """F.linear, for several samples and a matrix."""
    return LinearTap(input.detach()) if input.ndim > 1 and weight.ndim == 2 else None


def addmm(bias, input, weight) -> Tap | None:
    """torch.addmm of a bias for each column."""
    return LinearTap(input.detach(), transposed=True) if bias.ndim == 1 else None
