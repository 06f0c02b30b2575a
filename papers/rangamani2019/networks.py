"""The networks of the paper, as chains of layers with ReLU between them.

Its LeNet has "two convolutional-pooling layers, followed by two fully connected layers of
120 and 84 neurons before the final output layer with 10 neurons" (section 4.1). That is
network C1 of its Table 1, whose FC(320, 120) fixes the rest: 5 x 5 convolutions to 10 and
20 channels without padding, and 2 x 2 max pooling.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from torch import nn

F1 = {"kind": "fully connected", "widths": [784, 300, 100, 10]}
C1 = {
    "kind": "LeNet",
    "size": 28,
    "channels": [10, 20],
    "kernels": [5, 5],
    "widths": [120, 84, 10],
}
MNIST_FC = {"kind": "fully connected", "widths": [784, 512, 512, 512, 512, 512, 10]}
TINY_FC = {"kind": "fully connected", "widths": [64, 32, 10]}
TINY_LENET = {
    "kind": "LeNet",
    "size": 8,
    "channels": [4, 8],
    "kernels": [3, 2],
    "widths": [16, 12, 10],
}


def build(shape: dict[str, Any], bias: bool) -> nn.Sequential:
    """A network of one of the shapes above, on images [n, 1, size, size] or vectors."""
    if shape["kind"] == "fully connected":
        return nn.Sequential(nn.Flatten(), *_linear(shape["widths"], bias))
    modules: list[nn.Module] = []
    size, before = shape["size"], 1
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
