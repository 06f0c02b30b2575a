"""Squared per-sample gradients of single operations, from their inputs and slopes.

With δ the derivative of some scalar of each sample with respect to an operation's
output, a `Tap` gives Σ_n s_n (∂/∂W)², entry by entry, without a gradient for each
sample where the operation allows it (a linear layer with one position per sample), and
in bounded chunks of samples elsewhere.

To support another operation, write a function that turns its arguments into a `Tap` and
add it to `TAPPED`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.graph import GradientEdge

from flatgauge.vectors import Params

# Entries of per-sample gradients held at a time: few launches on a GPU, as far as its
# memory goes; what stays in the cache of a CPU, so that squares are taken there.
CHUNK = 2**22
GPU_CHUNK = 2**28
# Bytes of a GPU's memory for each entry, so that a chunk is a small part of it.
BYTES_AN_ENTRY = 256


class Call(NamedTuple):
    """An operation's output in the graph, and its parameters by role ("weight", "bias")."""

    output: GradientEdge
    names: dict[str, str]


@dataclass(frozen=True)
class Tap(ABC):
    """One operation: its output, the parameters that it used, and the sums so far."""

    output: GradientEdge
    names: dict[str, str]
    sums: Params = field(default_factory=dict, init=False)

    @property
    def entries(self) -> int:
        """Numbers that are held for all samples while their pulls run."""
        return 0

    def add(self, slopes: Tensor, weights: Tensor) -> None:
        """Add some pulls, which lead: a slope and weights for each sample."""
        for slope, own in zip(slopes, weights, strict=True):
            for role, name in self.names.items():
                share, before = self.squares(role, slope, own), self.sums.get(name)
                self.sums[name] = share if before is None else before + share

    def total(self) -> Params:
        """What all pulls added up to."""
        return self.sums

    @abstractmethod
    def squares(self, role: str, slope: Tensor, weights: Tensor) -> Tensor:
        """Σ_n weights_nw (gradient of sample n)² for the parameter in a role, w leading."""


@dataclass(frozen=True)
class LinearTap(Tap):
    """x Wᵀ + b over samples and positions; `transposed` for x W."""

    input: Tensor
    transposed: bool = False
    squared: list[Tensor] = field(default_factory=list, init=False)

    def add(self, slopes: Tensor, weights: Tensor) -> None:
        """With one position per sample the pulls share x²: only their δ² are added."""
        pulls, count = weights.shape[:2]
        if slopes[0].numel() > count * slopes.shape[-1]:
            super().add(slopes, weights)
            return
        d = slopes.reshape(pulls, count, 1, -1)
        weighted = (d.square() * weights[..., None]).sum(0)
        self.squared[:] = [self.squared[0] + weighted if self.squared else weighted]

    def total(self) -> Params:
        """(Σ_pulls δ²)ᵀ x² in one product, or what was added."""
        if not self.squared:
            return self.sums
        weighted = self.squared[0]
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
        d = slope.reshape(count, -1, slope.shape[-1])
        if role == "bias":
            return weights.mT @ d.sum(1).square()
        x = self.input.reshape(count, -1, self.input.shape[-1])
        total = d.new_zeros(weights.shape[1], d.shape[2], x.shape[2])
        for rows in chunks(count, d.shape[2] * x.shape[2], d.device):
            gradients = d[rows].mT @ x[rows]
            total += torch.einsum("nw,nab->wab", weights[rows], gradients.square_())
        return total.mT if self.transposed else total


def _linear(call: Call, input, weight, bias=None):
    return LinearTap(*call, input.detach()) if input.ndim > 1 else None


def _addmm(call: Call, bias, input, weight):
    if bias.ndim != 1:
        return None
    return LinearTap(*call, input.detach(), transposed=True)


@dataclass(frozen=True)
class ConvolutionTap(Tap):
    """A convolution of two space dimensions, or its transpose; for one, a row of pixels."""

    input: Tensor
    weight: Tensor
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    transposed: bool

    def squares(self, role: str, slope: Tensor, weights: Tensor) -> Tensor:
        """Chunks of Σ_positions δ · patch, with the patches unfolded."""
        count, kinds = weights.shape
        # Frames or windows of one sample may be laid out as images of their own.
        each = slope.shape[0] // count
        x, d = self.input, _image(slope)
        if role == "bias":
            sums = d.sum((2, 3)).unflatten(0, (count, each)).sum(1)
            return weights.mT @ sums.square()
        # A transposed convolution is the same product with the roles exchanged.
        still, moving = (x, d) if self.transposed else (d, x)
        held = None if self.transposed else self._patches
        per_image = self.weight.numel()
        if held is None:
            per_image += moving[0].numel() * math.prod(self.kernel)
        total = self.weight.new_zeros(
            kinds, self.groups, self.weight.numel() // self.groups
        )
        for rows in chunks(count, each * per_image, slope.device):
            images = slice(rows.start * each, rows.stop * each)
            patches = self._unfold(moving[images]) if held is None else held[images]
            left = still[images].flatten(2).unflatten(1, (self.groups, -1))
            gradients = left @ patches.mT
            if each > 1:
                gradients = gradients.unflatten(0, (-1, each)).sum(1)
            squares = gradients.flatten(2).square_()
            total += torch.einsum("nw,ngk->wgk", weights[rows], squares)
        return total.reshape(kinds, *self.weight.shape)

    @property
    def entries(self) -> int:
        """The unfolded patches, which serve every pull."""
        return self.input.numel() * math.prod(self.kernel)

    @cached_property
    def _patches(self) -> Tensor:
        return self._unfold(self.input)

    def _unfold(self, images: Tensor) -> Tensor:
        """Patches [images, groups, channels × kernel, positions], in one strided copy.

        F.unfold launches a kernel for each image on a GPU.
        """
        (top, left), (down, across) = self.padding, self.stride
        padded = F.pad(images, (left, left, top, top))
        reach = [self.dilation[i] * (self.kernel[i] - 1) + 1 for i in (0, 1)]
        windows = padded.unfold(2, reach[0], down).unfold(3, reach[1], across)
        windows = windows[..., :: self.dilation[0], :: self.dilation[1]]
        patches = windows.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)
        return patches.unflatten(1, (self.groups, -1))


def _convolution(
    call: Call,
    input,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    transposed=False,
):
    space = weight.ndim - 2
    if input.ndim != weight.ndim:
        return None
    if padding == "same":
        kernel, spread = weight.shape[2:], _pair(dilation, space, 1)[-space:]
        reach = [spread[i] * (kernel[i] - 1) for i in reversed(range(space))]
        sides = [side for r in reach for side in (r // 2, r - r // 2)]
        input = F.pad(input.detach(), sides)
    border = 0 if isinstance(padding, str) else padding
    return ConvolutionTap(
        *call,
        _image(input.detach()),
        weight.detach(),
        _pair(weight.shape[2:], space, 1),
        _pair(stride, space, 1),
        _pair(border, space, 0),
        _pair(dilation, space, 1),
        groups,
        transposed,
    )


def _transposed_convolution(
    call: Call,
    input,
    weight,
    bias=None,
    stride=1,
    padding=0,
    output_padding=0,
    groups=1,
    dilation=1,
):
    layout = stride, padding, dilation, groups
    return _convolution(call, input, weight, bias, *layout, transposed=True)


def _image(tensor: Tensor) -> Tensor:
    return tensor if tensor.ndim == 4 else tensor.unsqueeze(2)


def _pair(value: int | Iterable[int], space: int, fill: int) -> tuple[int, int]:
    """Two numbers for a convolution of one or two space dimensions."""
    values = [value] if isinstance(value, int) else list(value)
    return (fill, values[0]) if space == 1 else (values[0], values[-1])


@dataclass(frozen=True)
class EmbeddingTap(Tap):
    """Rows of a table, chosen by indices."""

    indices: Tensor
    table: Tensor

    def squares(self, role: str, slope: Tensor, weights: Tensor) -> Tensor:
        """Sum the slopes of equal indices within a sample, then square."""
        count, rows = weights.shape[0], self.table.shape[0]
        index = self.indices.reshape(count, -1)
        owner = torch.arange(count, device=index.device)[:, None] * rows
        keys, places = torch.unique(index + owner, return_inverse=True)
        width = slope.shape[-1]
        sums = slope.new_zeros(keys.numel(), width)
        sums.index_add_(0, places.reshape(-1), slope.reshape(-1, width))
        weighted = sums[:, None].square() * weights[keys // rows][:, :, None]
        total = self.table.new_zeros(rows, weights.shape[1], width)
        total.index_add_(0, keys % rows, weighted)
        return total.transpose(0, 1)


def _embedding(
    call: Call,
    input,
    weight,
    padding_idx=None,
    max_norm=None,
    norm_type=2.0,
    scale_grad_by_freq=False,
    sparse=False,
):
    if padding_idx is not None or max_norm is not None or scale_grad_by_freq:
        return None
    return EmbeddingTap(*call, input, weight.detach())


@dataclass(frozen=True)
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


def _batch_norm(
    call: Call,
    input,
    running_mean,
    running_var,
    weight=None,
    bias=None,
    training=False,
    momentum=0.1,
    eps=1e-5,
):
    if training:
        return None
    normalized = F.batch_norm(input.detach(), running_mean, running_var, eps=eps)
    return GainTap(*call, normalized, trailing=None)


def _layer_norm(call: Call, input, normalized_shape, weight=None, bias=None, eps=1e-5):
    normalized = F.layer_norm(input.detach(), normalized_shape, eps=eps)
    return GainTap(*call, normalized, trailing=len(normalized_shape))


def _group_norm(call: Call, input, num_groups, weight=None, bias=None, eps=1e-5):
    normalized = F.group_norm(input.detach(), num_groups, eps=eps)
    return GainTap(*call, normalized, trailing=None)


TAPPED: dict[Any, Callable[..., Tap | None]] = {
    F.linear: _linear,
    torch.addmm: _addmm,
    F.conv1d: _convolution,
    F.conv2d: _convolution,
    F.conv_transpose1d: _transposed_convolution,
    F.conv_transpose2d: _transposed_convolution,
    F.embedding: _embedding,
    F.batch_norm: _batch_norm,
    F.layer_norm: _layer_norm,
    F.group_norm: _group_norm,
}
"""How an operation becomes a tap, or None where it cannot.

A maker takes the `Call`, and then the arguments of the operation itself.
"""


def chunks(count: int, entries_each: int, device: torch.device) -> list[slice]:
    """Slices of samples that keep the entries held at a time bounded."""
    step = max(1, most_entries(device) // max(entries_each, 1))
    return [slice(start, start + step) for start in range(0, count, step)]


def most_entries(device: torch.device) -> int:
    """The numbers that may be held at a time."""
    if device.type != "cuda":
        return CHUNK
    memory = torch.cuda.get_device_properties(device).total_memory
    return min(GPU_CHUNK, memory // BYTES_AN_ENTRY)
