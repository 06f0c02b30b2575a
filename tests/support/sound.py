"""Networks whose derivatives are right, many of them hard to tell by differences."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from support.cases import mlp
from torch import Tensor, nn

import flatgauge as fg

WIDTH = 6
ACTIVATIONS = (
    nn.ReLU, nn.LeakyReLU, nn.PReLU, nn.ELU, nn.SELU, nn.GELU, nn.SiLU, nn.Mish, nn.Tanh,
    nn.Sigmoid, nn.Softplus, nn.Softsign, nn.Hardswish, nn.Hardtanh, nn.Hardsigmoid,
    nn.ReLU6, nn.Softshrink, nn.Tanhshrink, nn.LogSigmoid,
)  # fmt: skip


class Apply(nn.Module):
    """Any function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Branches(nn.Module):
    """x + f(x), f(x) · σ(g(x)), or one of two, chosen by the data."""

    def __init__(self, kind: str, one: nn.Module, other: nn.Module):
        super().__init__()
        self.kind, self.one, self.other = kind, one, other

    def forward(self, x: Tensor) -> Tensor:
        if self.kind == "residual":
            return x + self.one(x)
        if self.kind == "gated":
            return self.one(x) * self.other(x).sigmoid()
        chosen = x[:, :1] > 0
        return torch.where(chosen, self.one(x), self.other(x))


class Recurrent(nn.Module):
    def __init__(self, kind: str):
        super().__init__()
        self.inner = getattr(nn, kind)(WIDTH, WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.stack([x, x.flip(-1), 0.5 * x], 1))[0][:, -1]


class SelfAttention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        tokens = torch.stack([x, x.roll(1, -1), x.square()], 1)
        q, k, v = self.qkv(tokens).chunk(3, -1)
        return F.scaled_dot_product_attention(q, k, v).mean(1)


class Picture(nn.Module):
    """Convolution, maximum over windows, and back to a row of numbers."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(1, 3, 3, padding=1)
        self.back = nn.Linear(3 * (WIDTH // 2), WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.back(F.max_pool1d(self.conv(x[:, None]).relu(), 2).flatten(1))


def block(draw: random.Random, depth: int = 0) -> nn.Module:
    """A part that maps WIDTH numbers to WIDTH numbers."""
    kind = draw.randrange(12 if depth < 2 else 7)
    if kind < 4:
        layers = [nn.Linear(WIDTH, WIDTH), draw.choice(ACTIVATIONS)()]
        return nn.Sequential(*layers)
    if kind == 4:
        return draw.choice(
            [nn.LayerNorm(WIDTH), nn.GroupNorm(2, WIDTH), nn.RMSNorm(WIDTH)]
        )
    if kind == 5:
        return nn.BatchNorm1d(WIDTH)
    if kind == 6:
        functions = [
            lambda x: x.sort(-1).values,
            lambda x: x.cummax(-1).values + x,
            lambda x: F.normalize(x + 1, dim=-1),
            lambda x: x.float().tanh().to(x.dtype),
            lambda x: torch.fft.rfft(x).abs().repeat(1, 2)[:, :WIDTH] + x,
            lambda x: F.dropout(x, 0.0).clamp(-2, 2),
            lambda x: x.logcumsumexp(-1),
        ]
        return Apply(draw.choice(functions))
    if kind == 7:
        return Recurrent(draw.choice(["RNN", "GRU", "LSTM"]))
    if kind == 8:
        return SelfAttention()
    if kind == 9:
        return Picture()
    name = draw.choice(["residual", "gated", "experts"])
    return Branches(name, block(draw, depth + 1), block(draw, depth + 1))


LOSSES: tuple[Any, ...] = (
    "cross-entropy",
    "normalized-cross-entropy",
    F.cross_entropy,
    F.multi_margin_loss,
    lambda f, y: F.smooth_l1_loss(f, F.one_hot(y, 3).to(f.dtype)),
    lambda f, y: f.gather(1, y[:, None]).mean(),
    lambda f, y: F.cross_entropy(f, y, label_smoothing=0.1),
)


def parts(seed: int) -> list[nn.Module]:
    """A stack of one to five parts and a head of three scores."""
    draw = random.Random(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        stack = [block(draw) for _ in range(draw.randint(1, 5))]
        stack = [*stack, nn.Linear(WIDTH, 3)]
        for parameter in nn.ModuleList(stack).parameters():
            what = draw.random()
            if what < 0.1:
                parameter.data.zero_()
            elif what < 0.2:
                parameter.data.mul_(10 ** draw.uniform(-2, 1))
    return stack


def options(seed: int) -> dict[str, Any]:
    """A loss, a precision and a mode."""
    draw = random.Random(seed + 1)
    return {
        "loss": draw.choice(LOSSES),
        "dtype": draw.choice([torch.float32, torch.float64]),
        "mode": draw.choice(["eval", "train"]),
    }


def data(seed: int, count: int = 12) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(count, WIDTH, generator=generator), torch.arange(count) % 3


@dataclass(frozen=True)
class Hard:
    """A network that is sound, and a reason to doubt it."""

    build: Callable[[], nn.Module]
    options: dict[str, Any] = field(default_factory=dict)
    inputs: Callable[[], Any] = lambda: data(0)[0]
    targets: Callable[[], Tensor] = lambda: data(0)[1]

    def objective(self) -> fg.Objective:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            model = self.build()
        return fg.Objective(model, [(self.inputs(), self.targets())], **self.options)


def scaled(model: nn.Module, *factors: float) -> nn.Module:
    """Parameters multiplied by the factors, in turn."""
    for index, parameter in enumerate(model.parameters()):
        parameter.data.mul_(factors[index % len(factors)])
    return model


def saturated(factor: float) -> nn.Module:
    model = nn.Linear(3, 3, bias=False)
    model.weight.data = factor * torch.eye(3)
    return model


class Adapted(nn.Module):
    """A low-rank change that starts at 0 on a frozen, large weight."""

    def __init__(self):
        super().__init__()
        self.base = nn.Linear(WIDTH, 3).requires_grad_(False)
        self.down = nn.Parameter(0.1 * torch.randn(2, WIDTH))
        self.up = nn.Parameter(torch.zeros(3, 2))

    def forward(self, x: Tensor) -> Tensor:
        return self.base(100 * x) + x @ self.down.T @ self.up.T


def normed(**where: Any) -> nn.Module:
    return nn.Sequential(
        nn.Linear(WIDTH, 5), nn.BatchNorm1d(5), nn.ReLU(), nn.Linear(5, 3)
    )


def _onehot() -> Tensor:
    return torch.eye(3).repeat(4, 1)


HARD = {
    "wide-relu": Hard(lambda: mlp(WIDTH, 300, 300, 300, 300, 3)),
    "dead": Hard(lambda: scaled(mlp(WIDTH, 8, 3), 0.01, -500.0)),
    "all-zero": Hard(lambda: scaled(mlp(WIDTH, 8, 3), 0.0)),
    "zero-weights": Hard(lambda: scaled(mlp(WIDTH, 8, 8, 3), 0.0, 1.0)),
    "huge": Hard(lambda: scaled(mlp(WIDTH, 8, 3), 1e6), {"dtype": torch.float64}),
    "tiny": Hard(lambda: scaled(mlp(WIDTH, 8, 3), 1e-6)),
    "unbalanced": Hard(lambda: scaled(mlp(WIDTH, 8, 3, bias=False), 1e7, 1e-7)),
    "saturated-tanh": Hard(
        lambda: scaled(mlp(WIDTH, 8, 3, activation=nn.Tanh), 100, 1, 1, 1)
    ),
    "loss-1e-9": Hard(lambda: saturated(21.0), inputs=_onehot),
    "loss-1e-9-callable": Hard(
        lambda: saturated(21.0), {"loss": F.cross_entropy}, _onehot
    ),
    "loss-1e-17": Hard(lambda: saturated(39.0), {"loss": F.cross_entropy}, _onehot),
    "loss-0": Hard(lambda: saturated(800.0), {"loss": F.cross_entropy}, _onehot),
    "hinge-satisfied": Hard(
        lambda: saturated(9.0), {"loss": F.multi_margin_loss}, _onehot
    ),
    "offset": Hard(
        lambda: mlp(WIDTH, 5, 3), {"loss": lambda f, y: F.cross_entropy(f, y) + 1e7}
    ),
    "linear": Hard(lambda: nn.Linear(WIDTH, 3), {"loss": lambda f, y: f.mean()}),
    "cancelled-bias": Hard(
        normed, {"mode": "train", "params": lambda n: n == "0.bias"}
    ),
    "cancelled-bias-double": Hard(
        normed,
        {"mode": "train", "params": lambda n: n == "0.bias", "dtype": torch.float64},
    ),
    "pooled-ties": Hard(
        lambda: nn.Sequential(
            nn.Conv2d(1, 2, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
            nn.Linear(8, 3),
        ),
        inputs=lambda: torch.ones(12, 1, 4, 4),
    ),
    "low-rank": Hard(Adapted),
    "low-rank-in-float32": Hard(
        lambda: nn.Sequential(Adapted(), Apply(lambda x: x.float().to(x.dtype)))
    ),
    "float32-loss": Hard(
        lambda: mlp(WIDTH, 5, 3),
        {"loss": lambda f, y: (F.cross_entropy(f, y) + 1e4).float().to(f.dtype)},
    ),
    "bfloat16-inside": Hard(
        lambda: nn.Sequential(
            nn.Linear(WIDTH, 5), Apply(lambda x: x.bfloat16().to(x.dtype)), nn.Linear(5, 3)
        )
    ),
    "rounded": Hard(
        lambda: nn.Sequential(
            nn.Linear(WIDTH, 5), Apply(lambda x: x + x.round()), nn.Linear(5, 3)
        )
    ),
    "one-sample": Hard(
        lambda: mlp(WIDTH, 5, 3), {}, lambda: data(0)[0][:1], lambda: data(0)[1][:1]
    ),
    "spectral-norm": Hard(
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(WIDTH, 3))
    ),
}  # fmt: skip
