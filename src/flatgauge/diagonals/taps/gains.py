"""Gains and biases of normalization layers."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from flatgauge.diagonals.taps.tap import Tap


@dataclass
class GainTap(Tap):
    """x̂ · gain + bias of a normalization layer.

    The gain runs over dimension 1, or over the last `trailing` dimensions.
    """

    normalized: Tensor
    trailing: int | None

    def squares(self, role: str, slope: Tensor, weights: Tensor) -> Tensor:
        """Sum over positions, then square."""
        each, count = slope if role == "bias" else slope * self.normalized, len(weights)
        if self.trailing is None:
            sums = each.reshape(count, -1, each.shape[1], each[0, 0].numel())
            sums = sums.sum((1, 3))
        else:
            features = each.shape[each.ndim - self.trailing :]
            sums = each.reshape(count, -1, *features).sum(1)
        return torch.tensordot(weights.mT, sums.square(), dims=1)


def batch_norm(
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
) -> Tap | None:
    """F.batch_norm, with running statistics."""
    if training:
        return None
    normalized = F.batch_norm(input.detach(), running_mean, running_var, eps=eps)
    return GainTap(normalized, trailing=None)


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5) -> Tap:
    """F.layer_norm."""
    normalized = F.layer_norm(input.detach(), normalized_shape, eps=eps)
    return GainTap(normalized, trailing=len(normalized_shape))


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5) -> Tap:
    """F.group_norm."""
    normalized = F.group_norm(input.detach(), num_groups, eps=eps)
    return GainTap(normalized, trailing=None)
