"""Small float64 networks and data that the scripts of the documentation share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn

CLASSES = 4


def seeded(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """A float64 module whose initial weights depend on the seed alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build().double()


def normal(*shape: int, seed: int = 0) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=random, dtype=torch.float64)


def mlp(*widths: int, bias: bool = True, activation: type[nn.Module] = nn.ReLU):
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs, bias=bias), activation()]
    return nn.Sequential(*layers[:-1])


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 4, 3),
        nn.ReLU(),
        nn.Conv2d(4, 3, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(12, CLASSES),
    )


def normalized(eps: float) -> nn.Module:
    """A batch norm between two linear layers, its gain and shift away from 1 and 0."""
    model = nn.Sequential(
        nn.Linear(3, 5, bias=False),
        nn.BatchNorm1d(5, eps=eps),
        nn.ReLU(),
        nn.Linear(5, CLASSES),
    )
    norm = model[1]
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.bias, std=0.5)
    nn.init.normal_(norm.running_mean, std=0.2)
    nn.init.uniform_(norm.running_var, 0.5, 2.0)
    return model


class Attention(nn.Module):
    """Self-attention with two heads, separate weights and no biases."""

    def __init__(self, width: int = 6, heads: int = 2):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(width, width, bias=False) for _ in range(4)
        )
        self.head = nn.Linear(width, CLASSES, bias=False)
        with torch.no_grad():
            for parameter in self.parameters():
                parameter.mul_(2)

    def forward(self, tokens: Tensor) -> Tensor:
        q, k, v = (
            part(tokens).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in (self.query, self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.head(self.output(mixed.transpose(1, 2).flatten(2)).mean(1))


class Transformer(nn.Module):
    """A block with layer norms, torch's attention and a GELU, on a stream of tokens."""

    def __init__(self, width: int = 6):
        super().__init__()
        self.embed = nn.Linear(6, width)
        self.before, self.between, self.last = (nn.LayerNorm(width) for _ in range(3))
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.inside, self.outside = nn.Linear(width, 8), nn.Linear(8, width)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        y = self.before(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        x = x + self.outside(nn.functional.gelu(self.inside(self.between(x))))
        return self.head(self.last(x).mean(1))


class Gated(nn.Module):
    """A block with root-mean-square norms, a gate, and one key-value head for two heads."""

    def __init__(self, width: int = 6):
        super().__init__()
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(3))
        self.query, self.output = (
            nn.Linear(width, width, bias=False) for _ in range(2)
        )
        self.key, self.value = (nn.Linear(width, width // 2) for _ in range(2))
        self.gate, self.up = (nn.Linear(width, 8, bias=False) for _ in range(2))
        self.down = nn.Linear(8, width, bias=False)
        self.head = nn.Linear(width, CLASSES, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](x)
        q = self.query(y).unflatten(-1, (2, -1)).transpose(1, 2)
        k, v = (
            part(y)[:, None].expand(-1, 2, -1, -1) for part in (self.key, self.value)
        )
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        y = self.norms[1](x)
        x = x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))
        return self.head(self.norms[2](x).mean(1))


class Residual(nn.Module):
    """A residual stream that a linear map begins and that root-mean-square norms read."""

    def __init__(self, width: int = 6):
        super().__init__()
        self.begin, self.head = nn.Linear(3, width), nn.Linear(width, CLASSES)
        self.norms = nn.ModuleList(nn.RMSNorm(width) for _ in range(2))
        self.up, self.down = nn.Linear(width, 8), nn.Linear(8, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.begin(x)
        x = x + self.down(nn.functional.silu(self.up(self.norms[0](x))))
        return self.head(self.norms[1](x))


class LowRank(nn.Module):
    """A linear map with LoRA's product of two factors beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.head = nn.Linear(3, 5), nn.Linear(5, CLASSES)
        self.a, self.b = nn.Linear(3, 2, bias=False), nn.Linear(2, 5, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.base(x) + self.b(self.a(x))))
