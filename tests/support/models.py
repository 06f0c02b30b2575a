"""Networks with known symmetry groups, built from torch alone."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn


def mlp(*widths: int, bias: bool = True) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out, bias=bias), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lenet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
        nn.Linear(84, 10),
    )  # fmt: skip


def alexnet() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(3, 64, 11, stride=4, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(64, 192, 5, padding=2), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.Conv2d(192, 384, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(384, 256, 3, padding=1), nn.ReLU(True),
        nn.Conv2d(256, 256, 3, padding=1), nn.ReLU(True), nn.MaxPool2d(3, 2),
        nn.AdaptiveAvgPool2d(6), nn.Flatten(), nn.Dropout(),
        nn.Linear(256 * 36, 4096), nn.ReLU(True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(True), nn.Linear(4096, 1000),
    )  # fmt: skip


def vgg16() -> nn.Sequential:
    layers: list[nn.Module] = []
    channels = 3
    for width, depth in ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)):
        for _ in range(depth):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU(True)]
            channels = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(7), nn.Flatten(),
        nn.Linear(512 * 49, 4096), nn.ReLU(True), nn.Dropout(),
        nn.Linear(4096, 4096), nn.ReLU(True), nn.Dropout(), nn.Linear(4096, 1000),
    )  # fmt: skip


class PreActivationBlock(nn.Module):
    def __init__(self, fan_in: int, fan_out: int, stride: int) -> None:
        super().__init__()
        self.norm1 = nn.BatchNorm2d(fan_in)
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(fan_out)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, 1, 1, bias=False)
        self.shortcut = (
            nn.Conv2d(fan_in, fan_out, 1, stride, bias=False)
            if fan_in != fan_out
            else None
        )

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.norm1(x))
        short = x if self.shortcut is None else self.shortcut(y)
        return self.conv2(torch.relu(self.norm2(self.conv1(y)))) + short


def wide_resnet(widths: tuple[int, ...] = (64, 128, 256), first: int = 16) -> nn.Module:
    blocks: list[nn.Module] = [nn.Conv2d(3, first, 3, padding=1, bias=False)]
    channels = first
    for stage, width in enumerate(widths):
        for block in range(2):
            stride = 2 if stage and block == 0 else 1
            blocks.append(PreActivationBlock(channels, width, stride))
            channels = width
    return nn.Sequential(
        *blocks, nn.BatchNorm2d(channels), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(), nn.Linear(channels, 10),
    )  # fmt: skip


class ResidualBlock(nn.Module):
    """Basic (`bottleneck=False`) or bottleneck block, as in torchvision."""

    def __init__(self, fan_in: int, width: int, stride: int, bottleneck: bool) -> None:
        super().__init__()
        fan_out = 4 * width if bottleneck else width
        shapes = (
            [(fan_in, width, 1, 1), (width, width, 3, stride), (width, fan_out, 1, 1)]
            if bottleneck
            else [(fan_in, width, 3, stride), (width, width, 3, 1)]
        )
        layers: list[nn.Module] = []
        for a, b, size, step in shapes:
            layers += [
                nn.Conv2d(a, b, size, step, size // 2, bias=False),
                nn.BatchNorm2d(b),
                nn.ReLU(inplace=True),
            ]
        self.body = nn.Sequential(*layers[:-1])
        self.shortcut = nn.Sequential()
        if stride != 1 or fan_in != fan_out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(fan_in, fan_out, 1, stride, bias=False),
                nn.BatchNorm2d(fan_out),
            )

    def forward(self, x: Tensor) -> Tensor:
        y = self.body(x)
        y += self.shortcut(x)
        return torch.relu_(y)


def resnet(depths: tuple[int, ...], bottleneck: bool) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64),
        nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    channels = 64
    for stage, depth in enumerate(depths):
        width = 64 * 2**stage
        for block in range(depth):
            stride = 2 if stage and block == 0 else 1
            layers.append(ResidualBlock(channels, width, stride, bottleneck))
            channels = 4 * width if bottleneck else width
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000)]
    return nn.Sequential(*layers)


def resnet18() -> nn.Sequential:
    return resnet((2, 2, 2, 2), bottleneck=False)


def resnet50() -> nn.Sequential:
    return resnet((3, 4, 6, 3), bottleneck=True)


class InvertedResidual(nn.Module):
    def __init__(self, fan_in: int, fan_out: int, stride: int, expand: int) -> None:
        super().__init__()
        hidden = fan_in * expand
        layers: list[nn.Module] = []
        if expand != 1:
            layers += [nn.Conv2d(fan_in, hidden, 1, bias=False)]
            layers += [nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True)]
        layers += [
            nn.Conv2d(hidden, hidden, 3, stride, 1, groups=hidden, bias=False),
            nn.BatchNorm2d(hidden), nn.ReLU6(inplace=True),
            nn.Conv2d(hidden, fan_out, 1, bias=False), nn.BatchNorm2d(fan_out),
        ]  # fmt: skip
        self.body = nn.Sequential(*layers)
        self.residual = stride == 1 and fan_in == fan_out

    def forward(self, x: Tensor) -> Tensor:
        return x + self.body(x) if self.residual else self.body(x)


def mobilenet_v2(multiplier: float = 0.25, classes: int = 10) -> nn.Sequential:
    def round8(width: float) -> int:
        rounded = max(8, int(width + 4) // 8 * 8)
        return rounded + 8 if rounded < 0.9 * width else rounded

    channels = round8(32 * multiplier)
    layers: list[nn.Module] = [
        nn.Conv2d(3, channels, 3, 2, 1, bias=False), nn.BatchNorm2d(channels),
        nn.ReLU6(inplace=True),
    ]  # fmt: skip
    plan = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2),
            (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]  # fmt: skip
    for expand, width, depth, stride in plan:
        for block in range(depth):
            fan_out = round8(width * multiplier)
            layers.append(
                InvertedResidual(channels, fan_out, stride if block == 0 else 1, expand)
            )
            channels = fan_out
    return nn.Sequential(
        *layers, nn.Conv2d(channels, 1280, 1, bias=False), nn.BatchNorm2d(1280),
        nn.ReLU6(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2),
        nn.Linear(1280, classes),
    )  # fmt: skip


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down1 = nn.Conv2d(3, 8, 3, padding=1)
        self.down2 = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(16, 8, 2, stride=2)
        self.join = nn.Conv2d(16, 8, 3, padding=1)
        self.head = nn.Conv2d(8, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        fine = torch.relu(self.down1(x))
        coarse = nn.functional.leaky_relu(self.down2(fine), 0.1)
        both = torch.cat([self.up(coarse), fine], dim=1)
        return self.head(torch.relu(self.join(both)))


class EncoderBlock(nn.Module):
    def __init__(self, width: int, heads: int, hidden: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=1e-6)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.norm2 = nn.LayerNorm(width, eps=1e-6)
        self.mlp = nn.Sequential(
            nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class VisionTransformer(nn.Module):
    """As torchvision's, with a class token, learned positions and a zero head."""

    def __init__(
        self, image: int, patch: int, width: int, depth: int, heads: int, hidden: int,
        classes: int,
    ) -> None:  # fmt: skip
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        tokens = (image // patch) ** 2 + 1
        self.positions = nn.Parameter(torch.randn(1, tokens, width) * 0.02)
        self.blocks = nn.Sequential(
            *(EncoderBlock(width, heads, hidden) for _ in range(depth))
        )
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.head = nn.Linear(width, classes)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.positions
        return self.head(self.norm(self.blocks(x))[:, 0])


def small_vit() -> VisionTransformer:
    return VisionTransformer(32, 8, 32, 2, 4, 64, 10)


def vit_b16() -> VisionTransformer:
    return VisionTransformer(224, 16, 768, 12, 12, 3072, 1000)


class ChannelStream(nn.Module):
    """A stream of 3 channels behind batch norms."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(2, 3, 3, padding=1, bias=False)
        self.norm0 = nn.BatchNorm2d(3)
        self.conv = nn.Conv2d(3, 3, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(3)
        self.head = nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.norm0(self.stem(x)))
        return self.head(torch.relu(x + self.norm1(self.conv(x))).mean((2, 3)))


class Attend(nn.Module):
    """Two heads of two coordinates, and nothing else."""

    def __init__(self, bias: bool) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True, bias=bias)

    def forward(self, x: Tensor) -> Tensor:
        return self.attention(x, x, x, need_weights=False)[0]


def images(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))
