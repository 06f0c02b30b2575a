"""Wide residual networks (Zagoruyko and Komodakis 2016), and the same with norms folded."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

STAGES = 3
# Channels before the first stage, and of that stage for width factor 1.
FIRST = 16


class Block(nn.Module):
    """x + conv(relu(bn(conv(relu(bn(x)))))).

    Where the number of channels or the resolution changes, the shortcut is a 1 x 1
    convolution of relu(bn(x)).
    """

    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, padding=1, bias=False)
        changes = stride != 1 or inputs != outputs
        self.shortcut = (
            nn.Conv2d(inputs, outputs, 1, stride, bias=False) if changes else None
        )

    def forward(self, x: Tensor) -> Tensor:
        """The sum of the shortcut and the two convolutions."""
        ready = self.norm1(x).relu()
        short = x if self.shortcut is None else self.shortcut(ready)
        return short + self.conv2(self.norm2(self.conv1(ready)).relu())


class WideResNet(nn.Module):
    """A stem, three stages of blocks, and a linear layer on the means over positions.

    Args:
        depth: 6 n + 4 for n blocks a stage.
        width: the width factor.
        inputs: channels of an image.
        classes: how many outputs.
    """

    def __init__(self, depth: int, width: int, inputs: int = 3, classes: int = 10):
        super().__init__()
        self.stem = nn.Conv2d(inputs, FIRST, 3, padding=1, bias=False)
        blocks, before = [], FIRST
        for stage in range(STAGES):
            channels = FIRST * width * 2**stage
            for number in range((depth - 4) // (2 * STAGES)):
                stride = 2 if stage and not number else 1
                blocks.append(Block(before, channels, stride))
                before = channels
        self.blocks = nn.Sequential(*blocks)
        self.norm, self.head = nn.BatchNorm2d(before), nn.Linear(before, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x: Tensor) -> Tensor:
        """Scores of the classes."""
        x = self.norm(self.blocks(self.stem(x))).relu()
        return self.head(x.mean((2, 3)))


def folded(model: WideResNet) -> WideResNet:
    """The same function in eval mode, each norm right behind a convolution folded into it.

    These are the second norm of each block, and the first one of all if its block has a
    convolution as its shortcut. The others follow a sum.
    """
    model = copy.deepcopy(model).eval()
    first = model.blocks[0]
    assert isinstance(first, Block)
    if first.shortcut is not None:
        model.stem = fuse_conv_bn_eval(model.stem, first.norm1)
        first.norm1 = nn.Identity()  # type: ignore[assignment]
    for block in model.blocks:
        assert isinstance(block, Block)
        block.conv1 = fuse_conv_bn_eval(block.conv1, block.norm2)
        block.norm2 = nn.Identity()  # type: ignore[assignment]
    return model


@torch.no_grad()
def recalibrated(model: WideResNet, inputs: Tensor, batch: int) -> WideResNet:
    """The same weights, with the statistics of all inputs: the mean over batches."""
    model = copy.deepcopy(model)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.reset_running_stats()
            module.momentum = None
    model.train()
    for some in inputs.split(batch):
        model(some)
    return model.eval()
