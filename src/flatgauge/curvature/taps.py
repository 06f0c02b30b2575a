"""Squared per-sample gradients of single operations, from their inputs and slopes.

With δ the derivative of some scalar of each sample with respect to an operation's
output, a `Tap` gives Σ_n s_n (∂/∂W)², entry by entry, without a gradient for each
sample where the operation allows it (a linear layer with one position a sample), and
in bounded chunks of samples elsewhere.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property

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


@dataclass(frozen=True)
class Tap(ABC):
    """One operation: its output, the parameters that it used, and the sums so far."""

    output: GradientEdge
    names: dict[str, str]
    sums: Params = field(default_factory=dict, init=False)

    @property
    def entries(self) -> int:
        """Numbers that are held for all samples while their passes run."""
        return 0

    def add(self, slopes: Tensor, weights: Tensor) -> None:
        """Add some passes, which lead: a slope and weights for each sample."""
        for slope, own in zip(slopes, weights, strict=True):
            for name, share in self.squares(slope, own).items():
                before = self.sums.get(name)
                self.sums[name] = share if before is None else before + share

    def total(self) -> Params:
        """What all passes added up to."""
        return self.sums

    @abstractmethod
    def squares(self, slope: Tensor, weights: Tensor) -> Params:
        """Σ_n weights_nw (gradient of sample n)², for each parameter, w leading."""


@dataclass(frozen=True)
class LinearTap(Tap):
    """x Wᵀ + b over samples and positions; `transposed` for x W."""

    input: Tensor
    transposed: bool = False
    squared: list[Tensor] = field(default_factory=list, init=False)

    def add(self, slopes: Tensor, weights: Tensor) -> None:
        """With one position a sample the passes share x²: only their δ² are added."""
        passes, count = weights.shape[:2]
        if slopes[0].numel() > count * slopes.shape[-1]:
            super().add(slopes, weights)
            return
        d = slopes.reshape(passes, count, 1, -1)
        weighted = (d.square() * weights[..., None]).sum(0)
        self.squared[:] = [self.squared[0] + weighted if self.squared else weighted]

    def total(self) -> Params:
        """(Σ_passes δ²)ᵀ x² in one product, or what was added."""
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

    def squares(self, slope: Tensor, weights: Tensor) -> Params:
        """Chunks of Σ_t δ_t x_tᵀ."""
        count = weights.shape[0]
        x = self.input.reshape(count, -1, self.input.shape[-1])
        d = slope.reshape(count, -1, slope.shape[-1])
        found: Params = {}
        if "bias" in self.names:
            found[self.names["bias"]] = weights.mT @ d.sum(1).square()
        if "weight" in self.names:
            squares = outer_squares(d.mT, x.mT, weights)
            found[self.names["weight"]] = squares.mT if self.transposed else squares
        return found


@dataclass(frozen=True)
class ConvolutionTap(Tap):
    """A convolution of one or two space dimensions, or its transpose."""

    input: Tensor
    weight: Tensor
    stride: tuple[int, int]
    padding: tuple[int, int]
    dilation: tuple[int, int]
    groups: int
    transposed: bool

    def squares(self, slope: Tensor, weights: Tensor) -> Params:
        """Chunks of Σ_positions δ · patch, with the patches unfolded."""
        found: Params = {}
        count = weights.shape[0]
        # Frames or windows of one sample may be laid out as images of their own.
        each = slope.shape[0] // count
        x, d = (t if t.ndim == 4 else t.unsqueeze(2) for t in (self.input, slope))
        if "bias" in self.names:
            sums = d.sum((2, 3)).unflatten(0, (count, each)).sum(1)
            found[self.names["bias"]] = weights.mT @ sums.square()
        if "weight" in self.names:
            # A transposed convolution is the same product with the roles exchanged.
            still, moving = (x, d) if self.transposed else (d, x)
            kernel = self._kernel
            kinds = weights.shape[1]
            total = self.weight.new_zeros(
                kinds, self.groups, self.weight.numel() // self.groups
            )
            held = None if self.transposed else self._patches
            per_image = self.weight.numel()
            if held is None:
                per_image += moving[0].numel() * kernel[0] * kernel[1]
            for rows in chunks(count, each * per_image, slope.device):
                images = slice(rows.start * each, rows.stop * each)
                patches = self._unfold(moving[images]) if held is None else held[images]
                left = still[images].flatten(2).unflatten(1, (self.groups, -1))
                gradients = left @ patches.mT
                if each > 1:
                    gradients = gradients.unflatten(0, (-1, each)).sum(1)
                total += torch.einsum(
                    "nw,ngk->wgk", weights[rows], gradients.flatten(2).square_()
                )
            found[self.names["weight"]] = total.reshape(kinds, *self.weight.shape)
        return found

    @property
    def entries(self) -> int:
        """The unfolded patches, which serve every pass."""
        return self.input.numel() * self._kernel[0] * self._kernel[1]

    @property
    def _kernel(self) -> tuple[int, int]:
        *first, last = self.weight.shape[2:]
        return (first[0] if first else 1, last)

    @cached_property
    def _patches(self) -> Tensor:
        return self._unfold(
            self.input if self.input.ndim == 4 else self.input.unsqueeze(2)
        )

    def _unfold(self, images: Tensor) -> Tensor:
        """Patches [images, groups, channels × kernel, positions], in one strided copy.

        F.unfold launches a kernel for each image on a GPU.
        """
        (top, left), (down, across) = self.padding, self.stride
        padded = F.pad(images, (left, left, top, top))
        reach = [
            d * (k - 1) + 1 for d, k in zip(self.dilation, self._kernel, strict=True)
        ]
        windows = padded.unfold(2, reach[0], down).unfold(3, reach[1], across)
        windows = windows[..., :: self.dilation[0], :: self.dilation[1]]
        patches = windows.permute(0, 1, 4, 5, 2, 3).flatten(4).flatten(1, 3)
        return patches.unflatten(1, (self.groups, -1))


@dataclass(frozen=True)
class EmbeddingTap(Tap):
    """Rows of a table, chosen by indices."""

    indices: Tensor
    table: Tensor

    def squares(self, slope: Tensor, weights: Tensor) -> Params:
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
        return {self.names["weight"]: total.transpose(0, 1)}


@dataclass(frozen=True)
class GainTap(Tap):
    """x̂ · gain + bias of a normalization layer.

    The gain runs over dimension 1, or over the last `trailing` dimensions.
    """

    normalized: Tensor
    trailing: int | None

    def squares(self, slope: Tensor, weights: Tensor) -> Params:
        """Sum over positions, then square."""
        found: Params = {}
        for role, each in (("weight", slope * self.normalized), ("bias", slope)):
            if role in self.names:
                count = weights.shape[0]
                if self.trailing is None:
                    sums = each.reshape(count, -1, each.shape[1], each[0, 0].numel())
                    sums = sums.sum((1, 3))
                else:
                    features = each.shape[each.ndim - self.trailing :]
                    sums = each.reshape(count, -1, *features).sum(1)
                found[self.names[role]] = torch.tensordot(
                    weights.mT, sums.square(), dims=1
                )
        return found


def outer_squares(left: Tensor, right: Tensor, weights: Tensor) -> Tensor:
    """Σ_n w_n (left_n right_nᵀ)² for [n, a, t] and [n, b, t], in chunks of samples."""
    total = left.new_zeros(weights.shape[1], left.shape[1], right.shape[1])
    entries = left.shape[1] * right.shape[1]
    for rows in chunks(weights.shape[0], entries, left.device):
        gradients = left[rows] @ right[rows].mT
        total += torch.einsum("nw,nab->wab", weights[rows], gradients.square_())
    return total


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
