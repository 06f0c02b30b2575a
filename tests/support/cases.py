"""Small named problems that many tests share: float64, a few hundred parameters."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.vectors import Params, gaussian, generator, ravel

KNOWN = json.loads((Path(__file__).parents[1] / "known_answers.json").read_text())


def fractions(value) -> Tensor:
    """Nested lists of fractions, written as strings, as a float64 tensor."""

    def convert(item):
        if isinstance(item, list):
            return [convert(one) for one in item]
        return float(Fraction(item))

    return torch.tensor(convert(value), dtype=torch.float64)


def known_network(name: str) -> fg.Objective:
    """A network of known_answers.json, such as "A/ce"."""
    case = KNOWN[name]
    layers: list[nn.Module] = []
    for index, weight in enumerate(case["W"]):
        matrix = fractions(weight)
        linear = nn.Linear(*reversed(matrix.shape), bias=case["b"] is not None).double()
        linear.weight.data = matrix
        if case["b"] is not None:
            linear.bias.data = fractions(case["b"][index])
        layers += [linear, nn.ReLU()]
    losses = {"ce": "cross-entropy", "nce": "normalized-cross-entropy"}
    data = (fractions(case["X"]), torch.tensor(case["y"]))
    return fg.Objective(nn.Sequential(*layers[:-1]), data, losses[case["loss"]])


def known(name: str, measure: str) -> float:
    return float(KNOWN[name]["measures"][measure]["value"])


NETWORK_CASES = [name for name in KNOWN if name != "closed_forms"]


class Residual(nn.Module):
    """Convolutions, BatchNorm and a residual sum."""

    def __init__(self, width: int = 3, classes: int = 3):
        super().__init__()
        self.first = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        h = F.relu(self.norm1(self.first(x)))
        h = F.relu(h + self.norm2(self.conv2(h)))
        return self.head(h.mean((2, 3)))


class Gpt(nn.Module):
    """Causal fused attention, LayerNorm with gain and bias, GELU, tied head."""

    def __init__(
        self, vocabulary: int = 7, width: int = 4, heads: int = 2, length: int = 5
    ):
        super().__init__()
        self.heads = heads
        self.token = nn.Embedding(vocabulary, width)
        self.position = nn.Parameter(torch.randn(length, width) * 0.3)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, tokens):
        x = self.token(tokens) + self.position[: tokens.shape[1]]
        q, k, v = (
            part.unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, dim=-1)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        x = x + self.down(F.gelu(self.up(self.norm2(x))))
        return x @ self.token.weight.T


class Attention(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        mixed, _ = self.attention(x, x, x, need_weights=False)
        return self.head(mixed.mean(1))


class Encoder(nn.Module):
    def __init__(self, width: int = 4):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(
            width, 2, dim_feedforward=5, batch_first=True
        )
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(3, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.lstm(x)[0][:, -1])


class TiedFrozen(nn.Module):
    """One weight used twice, one frozen layer, one parameter that nothing uses."""

    def __init__(self):
        super().__init__()
        self.shared = nn.Linear(4, 4)
        self.frozen = nn.Linear(4, 4)
        self.frozen.requires_grad_(False)
        self.again = nn.Linear(4, 4)
        self.again.weight = self.shared.weight
        self.head = nn.Linear(4, 3)
        self.unused = nn.Parameter(torch.ones(2))

    def forward(self, x):
        return self.head(torch.tanh(self.again(self.frozen(F.relu(self.shared(x))))))


def mlp(*widths: int, bias: bool = True, activation: type[nn.Module] = nn.ReLU):
    layers: list[nn.Module] = []
    for a, b in pairwise(widths):
        layers += [nn.Linear(a, b, bias=bias), activation()]
    return nn.Sequential(*layers[:-1])


def lenet(classes: int = 3):
    """LeNet's shape, shrunk to 8x8 images and a few hundred parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 2, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(2, 3, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(3, 5),
        nn.ReLU(),
        nn.Linear(5, classes),
    )


@dataclass(frozen=True)
class Case:
    """A model, and data of the right shape; randomized BatchNorm statistics."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[torch.Generator, int], Tensor]
    classes: int = 3
    tokens: bool = False
    mode: str = "eval"

    def model(self) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(3)
            model = self.build().double()
            for module in model.modules():
                if isinstance(module, nn.BatchNorm2d):
                    module.running_mean.normal_(std=0.2)
                    module.running_var.uniform_(0.5, 2.0)
                    module.weight.data.uniform_(0.5, 1.5)
                    module.bias.data.normal_(std=0.2)
        return model

    def data(self, count: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
        random = torch.Generator().manual_seed(seed)
        x = self.inputs(random, count)
        shape = x.shape if self.tokens else (count,)
        return x, torch.randint(0, self.classes, shape, generator=random)

    def objective(
        self, loss="cross-entropy", count: int = 6, **options
    ) -> fg.Objective:
        x, y = self.data(count)
        if loss == "mse" or callable(loss):
            random = torch.Generator().manual_seed(1)
            with torch.no_grad():
                shape = self.model().eval()(x).shape
            y = torch.randn(shape, generator=random, dtype=torch.float64)
        return fg.Objective(self.model(), (x, y), loss, mode=self.mode, **options)


def _normal(*shape: int):
    return lambda random, count: torch.randn(
        count, *shape, generator=random, dtype=torch.float64
    )


def _tokens(vocabulary: int, length: int):
    return lambda random, count: torch.randint(
        0, vocabulary, (count, length), generator=random
    )


CASES = {
    case.name: case
    for case in (
        Case("mlp", lambda: mlp(4, 6, 5, 3), _normal(4)),
        Case("tanh", lambda: mlp(4, 6, 3, activation=nn.Tanh), _normal(4)),
        Case("gelu", lambda: mlp(4, 6, 3, activation=nn.GELU), _normal(4)),
        Case("lenet", lenet, _normal(1, 8, 8)),
        Case("resnet", Residual, _normal(1, 4, 4)),
        Case("resnet-train", Residual, _normal(1, 4, 4), mode="train"),
        Case("gpt", Gpt, _tokens(7, 5), classes=7, tokens=True),
        Case("attention", Attention, _normal(4, 4)),
        Case("encoder", Encoder, _normal(4, 4)),
        Case("lstm", Recurrent, _normal(4, 3)),
        Case("tied-frozen", TiedFrozen, _normal(4)),
    )
}


def assert_close(found, expected, tolerance: float = 1e-12) -> None:
    """Tensors, or named vectors, equal up to a fraction of the expected norm."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        found, expected = ravel(found), ravel(expected)
    assert found.shape == expected.shape
    difference = float((found - expected).norm())
    assert difference <= tolerance * float(expected.norm()), difference


def random_vector(objective: fg.Objective, seed: int = 0) -> Params:
    return gaussian(objective.parameters, generator(seed))
