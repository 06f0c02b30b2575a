"""Parameters that are added, multiplied and expanded."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from support.squares import assert_same, slopes, slowly
from torch import nn

import flatgauge as fg
from flatgauge.diagonals.per_sample import SquaredGradients
from flatgauge.diagonals.shares import Shares

LENGTH, WIDTH = 5, 4


def rms(x):
    return x / (x.square().mean(-1, keepdim=True) + 1e-3).sqrt()


def in_place(p, x):
    h = 1 * x
    h += p
    return h


def time_first(function):
    return lambda p, x: function(p, x.transpose(0, 1)).transpose(0, 1)


def class_token(p, x):
    return torch.cat([p.expand(len(x), -1, -1), x], 1)


# The shape of a parameter, and what becomes of samples [N, LENGTH, WIDTH].
UNDERSTOOD = {
    "x + p": ((WIDTH,), lambda p, x: x + p),
    "p + x": ((LENGTH, WIDTH), lambda p, x: p + x),
    "x - p": ((WIDTH,), lambda p, x: x - p),
    "p - x": ((LENGTH, 1), lambda p, x: p - x),
    "x += p": ((1, LENGTH, WIDTH), in_place),
    "torch.add": ((LENGTH, 1), lambda p, x: torch.add(x, other=p)),
    "positions": ((1, LENGTH, WIDTH), lambda p, x: x + p),
    "time-first positions": ((LENGTH, 1, WIDTH), time_first(lambda p, x: x + p)),
    "time-first gain": ((WIDTH,), time_first(lambda p, x: x * p)),
    "flattened gain": ((WIDTH,), lambda p, x: (x.flatten(0, 1) * p).view_as(x)),
    "layer scale": ((WIDTH,), lambda p, x: x.sin() * p + x),
    "rms norm": ((WIDTH,), lambda p, x: p * rms(x)),
    "F.rms_norm": ((WIDTH,), lambda p, x: F.rms_norm(x, (WIDTH,), p)),
    "one number": ((), lambda p, x: x * p),
    "one number that is added": ((), lambda p, x: p + x),
    "size of one": ((1, 1, 1), lambda p, x: torch.mul(p, x)),
    "small factor": ((LENGTH, 1), lambda p, x: p * x.mean(1, keepdim=True) + x),
    "convolution": (
        (LENGTH, 1, 1),
        lambda p, x: (p * x.unflatten(2, (2, 2))).flatten(2),
    ),
    "class token": ((1, 1, WIDTH), class_token),
    "expand_as": ((WIDTH,), lambda p, x: p.expand_as(x) * x),
    "expand size": ((1, WIDTH), lambda p, x: p.expand(size=x.shape) * x),
    "time-first class token": (
        (1, 1, WIDTH),
        time_first(lambda p, x: torch.cat([p.expand(-1, x.shape[1], -1), x])),
    ),
}
GIVEN_UP = {
    "alpha": ((WIDTH,), lambda p, x: torch.add(x, p, alpha=2)),
    "used twice": ((WIDTH,), lambda p, x: (x + p).sin() * p),
    "square": ((WIDTH,), lambda p, x: x * (p * p)),
    "of itself": ((WIDTH,), lambda p, x: p * (x + p.sin())),
    "hidden": (
        (WIDTH,),
        lambda p, x: x * p + torch.func.vmap(lambda row: row.sin() * p)(x),
    ),
    "samples that are not there": ((1, WIDTH), lambda p, x: p.expand(2, -1).sum(0) * x),
    "multiplied in place": ((WIDTH,), lambda p, x: (1 * x).mul_(p)),
    "a part": (
        (2, WIDTH),
        lambda p, x: x.index_add(1, torch.tensor([0]), p[:1] + x[:, :1]),
    ),
    "other order": ((WIDTH,), lambda p, x: (x.flip(0) * p).flip(0)),
}


class Used(nn.Module):
    """Some use of a parameter, between two layers."""

    def __init__(self, shape, use):
        super().__init__()
        self.first, self.head = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 3)
        self.p, self.use = nn.Parameter(torch.randn(shape)), use

    def forward(self, x):
        h = self.first(x)
        return self.head(self.use(self.p, h).sin().mean(1))


def objective_of(kind: str, count: int, **options):
    random = torch.Generator().manual_seed(count)
    x = torch.randn(count, LENGTH, WIDTH, generator=random, dtype=torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Used(*{**UNDERSTOOD, **GIVEN_UP}[kind]).double()
    return fg.Objective(model, (x, torch.arange(count) % 3), **options)


# As many samples as positions, too.
@pytest.mark.parametrize("count", [1, 2, LENGTH, 2 * LENGTH, 7])
@pytest.mark.parametrize("kind", [*UNDERSTOOD, *GIVEN_UP])
def test_squares_are_those_of_single_samples(kind, count):
    objective = objective_of(kind, count)
    assert_same(SquaredGradients(objective).mean(slopes), slowly(objective))


@pytest.mark.parametrize("kind", [*UNDERSTOOD, *GIVEN_UP])
def test_in_batches_that_share_a_backward(kind):
    objective = objective_of(kind, 8, batch_size=LENGTH)
    squares = SquaredGradients(objective)
    squares.trials = replace(squares.trials, together=True)
    assert_same(squares.mean(slopes), slowly(objective))


@pytest.mark.parametrize("kind", UNDERSTOOD)
def test_what_is_understood_is_not_differentiated_singly(kind, monkeypatch):
    squares = SquaredGradients(objective_of(kind, LENGTH))
    assert squares.trials.singly == set()
    monkeypatch.setattr(Shares, "singly", None)
    squares.mean(slopes)


@pytest.mark.parametrize("kind", GIVEN_UP)
def test_what_is_not_understood_is(kind):
    assert "p" in SquaredGradients(objective_of(kind, LENGTH)).trials.singly


class Block(nn.Module):
    """A block of an encoder as torchvision writes it."""

    def __init__(self, width: int):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, 2, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(width, 6), nn.GELU(), nn.Linear(6, width))

    def forward(self, x):
        h = self.ln_1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.mlp(self.ln_2(x))


class VisionTransformer(nn.Module):
    """Four patches and a class token."""

    def __init__(self, width: int = 4):
        super().__init__()
        self.patches = nn.Conv2d(1, width, 4, 4)
        self.class_token = nn.Parameter(torch.randn(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, LENGTH, width))
        self.blocks = nn.Sequential(Block(width), Block(width))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 3)

    def forward(self, x):
        x = self.patches(x).flatten(2).permute(0, 2, 1)
        x = torch.cat([self.class_token.expand(len(x), -1, -1), x], 1)
        return self.head(self.norm(self.blocks(x + self.positions))[:, 0])


@pytest.mark.parametrize("count", [1, 2, LENGTH, 7])
def test_a_vision_transformer_needs_no_gradients_of_single_samples(count, monkeypatch):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = VisionTransformer().double()
    x = torch.randn(count, 1, 8, 8, generator=torch.Generator().manual_seed(0)).double()
    objective = fg.Objective(model, (x, torch.arange(count) % 3))
    squares = SquaredGradients(objective)
    assert squares.trials.singly == set()
    monkeypatch.setattr(Shares, "singly", None)
    assert_same(squares.mean(slopes), slowly(objective))
