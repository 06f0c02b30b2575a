"""Chains of layers with ReLU between them, which the experiments train."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from torch import nn


def build(shape: dict[str, Any], bias: bool) -> nn.Sequential:
    """A network on images, [n, inputs, size, size], or on vectors.

    Args:
        shape: kind "fully connected" with widths from the inputs to the outputs; or
            "LeNet" with inputs (channels of an image, 1 unless given), size, channels
            and kernels of the convolutions, each with 2 x 2 max pooling behind it, and
            the widths of what follows.
        bias: whether layers have biases.
    """
    if shape["kind"] == "fully connected":
        return nn.Sequential(nn.Flatten(), *_linear(shape["widths"], bias))
    modules: list[nn.Module] = []
    size, before = shape["size"], shape.get("inputs", 1)
    for channels, kernel in zip(shape["channels"], shape["kernels"], strict=True):
        modules += [nn.Conv2d(before, channels, kernel, bias=bias)]
        modules += [nn.ReLU(), nn.MaxPool2d(2)]
        size, before = (size - kernel + 1) // 2, channels
    flat = before * size**2
    return nn.Sequential(
        *modules, nn.Flatten(), *_linear([flat, *shape["widths"]], bias)
    )


def _linear(widths: list[int], bias: bool) -> list[nn.Module]:
    modules: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        modules += [nn.Linear(inputs, outputs, bias=bias), nn.ReLU()]
    return modules[:-1]


def alexnet(shape: dict[str, Any]) -> nn.Sequential:
    """Convolutions with overlapping 3 x 3 max pooling of stride 2, then linear layers.

    Args:
        shape: inputs (channels of an image), size, channels and kernels (odd) of the
            convolutions, and the widths of what follows. Convolutions pad so that the
            resolution stays, and pooling halves it, rounded up.
    """
    modules: list[nn.Module] = []
    size, before = shape["size"], shape["inputs"]
    for channels, kernel in zip(shape["channels"], shape["kernels"], strict=True):
        modules += [nn.Conv2d(before, channels, kernel, padding=kernel // 2), nn.ReLU()]
        modules.append(nn.MaxPool2d(3, 2, padding=1))
        size, before = (size + 1) // 2, channels
    flat = before * size**2
    return nn.Sequential(
        *modules, nn.Flatten(), *_linear([flat, *shape["widths"]], bias=True)
    )


def vgg(shape: dict[str, Any]) -> nn.Sequential:
    """Blocks of padded 3 x 3 convolutions, each block halved by max pooling, no norms.

    Args:
        shape: inputs (channels of an image), blocks (the channels of every convolution),
            widths of the linear layers after the last block, which leaves one position;
            dropout, the share behind all linear layers but the last; and deviation, that
            of the initial linear weights, or None for He's: √(2 / inputs).
    """
    modules: list[nn.Module] = []
    before = shape["inputs"]
    for block in shape["blocks"]:
        for channels in block:
            convolution = nn.Conv2d(before, channels, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out")
            modules += [convolution, nn.ReLU()]
            before = channels
        modules.append(nn.MaxPool2d(2))
    modules.append(nn.Flatten())
    *hidden, classes = shape["widths"]
    for width in hidden:
        modules += [nn.Linear(before, width), nn.ReLU(), nn.Dropout(shape["dropout"])]
        before = width
    modules.append(nn.Linear(before, classes))
    for module in modules:
        if isinstance(module, nn.Linear):
            deviation = shape["deviation"] or math.sqrt(2 / module.in_features)
            nn.init.normal_(module.weight, std=deviation)
        if isinstance(module, nn.Linear | nn.Conv2d):
            nn.init.zeros_(module.get_parameter("bias"))
    return nn.Sequential(*modules)
