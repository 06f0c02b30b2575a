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
