"""Rows of tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.diagonals.taps.tap import Tap


@dataclass
class EmbeddingTap(Tap):
    """Rows of a table, chosen by indices."""

    indices: Tensor
    table: Tensor

    def sample_dims(self, ndim: int) -> Iterable[int]:
        """All but that of the features."""
        return range(ndim - 1)

    def squares(self, role: str, slope: Tensor, weights: Tensor) -> Tensor:
        """Sum the slopes of equal indices within a sample, then square."""
        count, rows = weights.shape[0], self.table.shape[0]
        index = self.layout.samples_first(self.indices).flatten(1)
        owner = torch.arange(count, device=index.device)[:, None] * rows
        keys, places = torch.unique(index + owner, return_inverse=True)
        width = slope.shape[-1]
        d = self.layout.samples_first(slope).reshape(-1, width)
        sums = slope.new_zeros(keys.numel(), width)
        sums.index_add_(0, places.reshape(-1), d)
        weighted = sums[:, None].square() * weights[keys // rows][:, :, None]
        total = self.table.new_zeros(rows, weights.shape[1], width)
        total.index_add_(0, keys % rows, weighted)
        return total.transpose(0, 1)


def embedding(
    input,
    weight,
    padding_idx=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    sparse=False,
) -> Tap | None:
    """F.embedding, with none of the options that change slopes."""
    if padding_idx is not None or max_norm is not None or scale_grad_by_freq:
        return None
    return EmbeddingTap(input, weight.detach())
