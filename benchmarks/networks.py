"""The four networks of the benchmarks and their kin of other sizes, with random data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

Batch = tuple[Tensor, Tensor]


def mlp(width: int = 512) -> nn.Module:
    """784-512x5-10."""
    widths = [784, *[width] * 5, 10]
    layers: list[nn.Module] = [nn.Flatten()]
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def lenet(classes: int = 10) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 6, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(6, 16, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(400, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, classes),
    )


class WideBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(inputs), nn.BatchNorm2d(outputs)
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.shortcut = (
            nn.Identity()
            if inputs == outputs and stride == 1
            else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        )

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(x))
        return self.shortcut(h) + self.conv2(F.relu(self.norm2(self.conv1(h))))


def wide_resnet(factor: int = 4) -> nn.Module:
    """WRN-16-4, or that of another factor, for 32x32 images, BatchNorm in eval mode."""
    widths = [16, 16 * factor, 32 * factor, 64 * factor]
    blocks = [
        WideBlock(a if i == 0 else b, b, 1 if i or b == widths[1] else 2)
        for a, b in pairwise(widths)
        for i in range(2)
    ]
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, 1, 1, bias=False),
        *blocks,
        nn.BatchNorm2d(widths[-1]),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(widths[-1], 10),
    )


class GptBlock(nn.Module):
    """Attention written out, since the other packages cannot differentiate fused."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[1]
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        scores = q @ k.mT / q.shape[-1] ** 0.5
        later = torch.ones(length, length, device=x.device).triu(1).bool()
        mixed = scores.masked_fill(later, -1e9).softmax(-1) @ v
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Four layers of width 256 over 128 tokens, vocabulary 1000."""

    def __init__(self, width: int = 256, layers: int = 4, vocabulary: int = 1000):
        super().__init__()
        self.token, self.position = (
            nn.Embedding(vocabulary, width),
            nn.Embedding(128, width),
        )
        self.blocks = nn.Sequential(*(GptBlock(width, 8) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.blocks(self.token(tokens) + self.position(places))
        return self.head(self.norm(x)).flatten(0, 1)


def images(*shape: int, classes: int = 10) -> Callable[[int, torch.Generator], Batch]:
    def draw(count: int, random: torch.Generator) -> Batch:
        x = torch.randn(count, *shape, generator=random)
        return x, torch.randint(0, classes, (count,), generator=random)

    return draw


def tokens(length: int, vocabulary: int) -> Callable[[int, torch.Generator], Batch]:
    """Sequences, and of every token the next one, in one long row."""

    def draw(count: int, random: torch.Generator) -> Batch:
        x = torch.randint(0, vocabulary, (count, length + 1), generator=random)
        return x[:, :-1], x[:, 1:].flatten()

    return draw


@dataclass(frozen=True)
class Network:
    """A network, and how much data it gets on a CPU and on a GPU."""

    name: str
    build: Callable[[], nn.Module]
    draw: Callable[[int, torch.Generator], Batch]
    on_cpu: tuple[int, int]
    on_gpu: tuple[int, int]

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return self.build().eval()

    def sizes(self, device: str) -> tuple[int, int]:
        """Samples in all, and in one batch."""
        return self.on_gpu if device == "cuda" else self.on_cpu

    def few(self, device: str, most: int) -> Batch:
        """Other samples, for a comparison with float64: a CPU's batch, or `most`."""
        random = torch.Generator().manual_seed(2)
        inputs, targets = self.draw(min(most, self.on_cpu[1]), random)
        return inputs.to(device), targets.to(device)

    def batches(
        self, device: str, count: int | None = None, size: int | None = None
    ) -> list[Batch]:
        own_count, own_size = self.sizes(device)
        count, size = count or own_count, size or own_size
        random = torch.Generator().manual_seed(1)
        drawn = (self.draw(size, random) for _ in range(count // size))
        return [(inputs.to(device), targets.to(device)) for inputs, targets in drawn]


NETWORKS = {
    one.name: one
    for one in (
        Network("MLP", mlp, images(784), (4000, 1000), (10_000, 10_000)),
        Network("LeNet", lenet, images(1, 28, 28), (2000, 1000), (10_000, 10_000)),
        Network("WRN-16-4", wide_resnet, images(3, 32, 32), (32, 16), (10_000, 2500)),
        Network("GPT", Gpt, tokens(128, 1000), (4, 2), (256, 64)),
    )
}


def of_width(width: int) -> Network:
    """The MLP with hidden layers of another width."""
    sizes = (2000, 1000), (10_000, 10_000)
    return Network(f"MLP, width {width}", partial(mlp, width), images(784), *sizes)


def of_classes(classes: int) -> Network:
    """LeNet with another number of outputs."""
    draw = images(1, 28, 28, classes=classes)
    sizes = (1000, 1000), (10_000, 10_000)
    return Network(f"LeNet, {classes} classes", partial(lenet, classes), draw, *sizes)
