"""Gains and biases of normalization layers."""

from __future__ import annotations

from collections.abc import Iterable

import torch
import torch.nn.functional as F
from torch import Tensor

from flatgauge.diagonals.taps.stretched import Operand, StretchedTap
from flatgauge.diagonals.taps.tap import Tap


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
    return _channels(normalized)


def group_norm(input, num_groups, weight=None, bias=None, eps=1e-5) -> Tap:
    """F.group_norm."""
    return _channels(F.group_norm(input.detach(), num_groups, eps=eps))


def layer_norm(input, normalized_shape, weight=None, bias=None, eps=1e-5) -> Tap:
    """F.layer_norm."""
    normalized = F.layer_norm(input.detach(), normalized_shape, eps=eps)
    return _trailing(normalized, normalized_shape)


def rms_norm(input, normalized_shape, weight=None, eps=None) -> Tap:
    """F.rms_norm."""
    normalized = F.rms_norm(input.detach(), normalized_shape, eps=eps)
    return _trailing(normalized, normalized_shape)


def _channels(normalized: Tensor) -> Tap:
    """A gain and a bias for each entry of dimension 1."""
    channels = normalized.shape[1]
    aligned = (channels,) + (1,) * (normalized.ndim - 2)
    return _gain(normalized, torch.Size([channels]), aligned)


def _trailing(normalized: Tensor, shape: Iterable[int]) -> Tap:
    """A gain and a bias for each entry of the last dimensions."""
    size = torch.Size(shape)
    return _gain(normalized, size, size)


def _gain(normalized: Tensor, shape: torch.Size, aligned: tuple[int, ...]) -> Tap:
    """x̂ ∘ gain + bias."""
    return StretchedTap(
        {
            "weight": Operand(shape, aligned, normalized),
            "bias": Operand(shape, aligned),
        }
    )
