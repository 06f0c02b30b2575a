"""Convolutions of one and two space dimensions, and their transposes."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from flatgauge.diagonals.taps.tap import Tap, chunks


@dataclass
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

    def sample_dims(self, ndim: int) -> Iterable[int]:
        """That of the images."""
        return (0,)

    def squares(self, role: str, slope: Tensor, weights: Tensor) -> Tensor:
        """Chunks of Σ_positions δ · patch, with the patches unfolded."""
        count, kinds = weights.shape
        # Frames or windows of one sample may be laid out as images of their own.
        each = slope.shape[0] // count
        x, d = self._images(self.input), self._images(_image(slope))
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
        return self._unfold(self._images(self.input))

    def _images(self, tensor: Tensor) -> Tensor:
        """Those of the first sample, then those of the second, ..."""
        return self.layout.samples_first(tensor).flatten(0, 1)

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


def convolution(
    input,
    weight,
    bias=None,
    stride=1,
    padding=0,
    dilation=1,
    groups=1,
    transposed=False,
) -> Tap | None:
    """F.conv1d and F.conv2d."""
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
        _image(input.detach()),
        weight.detach(),
        _pair(weight.shape[2:], space, 1),
        _pair(stride, space, 1),
        _pair(border, space, 0),
        _pair(dilation, space, 1),
        groups,
        transposed,
    )


def transposed_convolution(
    input,
    weight,
    bias=None,
    stride=1,
    padding=0,
    output_padding=0,
    groups=1,
    dilation=1,
) -> Tap | None:
    """F.conv_transpose1d and F.conv_transpose2d."""
    layout = stride, padding, dilation, groups
    return convolution(input, weight, bias, *layout, transposed=True)


def _image(tensor: Tensor) -> Tensor:
    return tensor if tensor.ndim == 4 else tensor.unsqueeze(2)


def _pair(value: int | Iterable[int], space: int, fill: int) -> tuple[int, int]:
    """Two numbers for a convolution of one or two space dimensions."""
    values = [value] if isinstance(value, int) else list(value)
    return (fill, values[0]) if space == 1 else (values[0], values[-1])
