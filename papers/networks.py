"""Chains of layers with ReLU between them, which the experiments train."""

from __future__ import annotations

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
        shape: inputs (channels of an image), size, channels and kernels of the
            convolutions, which do not pad, and the widths of what follows.
    """
    modules: list[nn.Module] = []
    size, before = shape["size"], shape["inputs"]
    for channels, kernel in zip(shape["channels"], shape["kernels"], strict=True):
        modules += [nn.Conv2d(before, channels, kernel), nn.ReLU(), nn.MaxPool2d(3, 2)]
        size, before = (size - kernel + 1 - 3) // 2 + 1, channels
    flat = before * size**2
    return nn.Sequential(
        *modules, nn.Flatten(), *_linear([flat, *shape["widths"]], bias=True)
    )


def vgg(shape: dict[str, Any]) -> nn.Sequential:
    """Blocks of padded 3 x 3 convolutions, each block halved by max pooling, no norms.

    Args:
        shape: inputs (channels of an image), blocks (the channels of every convolution),
            widths of the linear layers after the last block, which leaves one position,
            and dropout, the share in front of all linear layers but the last.
    """
    modules: list[nn.Module] = []
    before = shape["inputs"]
    for block in shape["blocks"]:
        for channels in block:
            convolution = nn.Conv2d(before, channels, 3, padding=1)
            nn.init.kaiming_normal_(convolution.weight, mode="fan_out")
            nn.init.zeros_(convolution.get_parameter("bias"))
            modules += [convolution, nn.ReLU()]
            before = channels
        modules.append(nn.MaxPool2d(2))
    modules.append(nn.Flatten())
    *hidden, classes = shape["widths"]
    for width in hidden:
        modules += [nn.Dropout(shape["dropout"]), nn.Linear(before, width), nn.ReLU()]
        before = width
    return nn.Sequential(*modules, nn.Linear(before, classes))
