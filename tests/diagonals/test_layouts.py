"""Samples in front of positions and behind them, in attention and in time-first models."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from support.squares import assert_same, slopes, slowly
from torch import nn

import flatgauge as fg
from flatgauge.diagonals.attribution import TapWatcher
from flatgauge.diagonals.per_sample import SquaredGradients
from flatgauge.diagonals.shares import Shares
from flatgauge.isolation import ComposedWeightNorm
from flatgauge.kernels.layer_norm import OwnLayerNorms

LENGTH, WIDTH = 5, 4


class Sequences(nn.Module):
    """A layer of sequences [N, T, F], or [T, N, F], and what it returns as [N, 3]."""

    def __init__(self, layer: nn.Module, time_first: bool = False):
        super().__init__()
        self.layer, self.head = layer, nn.Linear(WIDTH, 3)
        self.time_first = time_first

    def forward(self, x):
        h = self.layer(x.transpose(0, 1) if self.time_first else x)
        return self.head(h.tanh().mean(0 if self.time_first else 1))


class SelfAttention(nn.MultiheadAttention):
    def __init__(self, need_weights: bool, **options):
        super().__init__(WIDTH, 2, **options)
        self.need_weights = need_weights

    def forward(self, x):
        return super().forward(x, x, x, need_weights=self.need_weights)[0]


class CrossAttention(nn.MultiheadAttention):
    """Of the first position, whose weight is cut: it is differentiated singly."""

    def forward(self, x):
        return super().forward(x[:, :1], x, x)[0]


class Flattened(nn.Module):
    """Steps of all samples in one dimension, one step after the other."""

    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.batch_norm = nn.BatchNorm1d(WIDTH)
        self.conv = nn.Conv1d(1, 2, 3, padding=1)
        self.back = nn.ConvTranspose1d(2, 1, 3, padding=1)

    def forward(self, x):
        flat = self.batch_norm(self.norm(self.linear(x.flatten(0, 1)).sin())).tanh()
        flat = self.back(self.conv(flat[:, None]).tanh())[:, 0]
        return flat.view_as(x)


class Looked(nn.Module):
    """Rows of a table."""

    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, WIDTH)

    def forward(self, x):
        return self.table((x[..., 0].abs() * 2).long().clamp(max=2)) * x


class Heads(nn.Module):
    """[T, N · heads, width of a head]."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        heads = x.reshape(len(x), -1, 2)
        return self.linear(heads).reshape(x.shape)


def encoder(batch_first: bool, norm_first: bool = False):
    options = {"batch_first": batch_first, "norm_first": norm_first}
    layer = nn.TransformerEncoderLayer(WIDTH, 2, 6, **options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


BATCH_FIRST = {
    "attention": lambda: SelfAttention(False, batch_first=True),
    "attention-with-weights": lambda: SelfAttention(True, batch_first=True),
    "attention-without-bias": lambda: SelfAttention(
        False, bias=False, batch_first=True
    ),
    "encoder": lambda: encoder(True),
    "encoder-norm-first": lambda: encoder(True, norm_first=True),
    "flattened": Flattened,
    "embedding": Looked,
}
TIME_FIRST = {
    "attention": lambda: SelfAttention(False),
    "attention-with-weights": lambda: SelfAttention(True),
    "encoder": lambda: encoder(False),
    "encoder-norm-first": lambda: encoder(False, norm_first=True),
    "linear": lambda: nn.Linear(WIDTH, WIDTH),
    "norm": lambda: nn.LayerNorm(WIDTH),
    "flattened": Flattened,
    "embedding": Looked,
    "heads": Heads,
}
LAYERS = {
    **{f"{name}, batch first": (make, False) for name, make in BATCH_FIRST.items()},
    **{f"{name}, time first": (make, True) for name, make in TIME_FIRST.items()},
}


def sequences(layer: str):
    make, time_first = LAYERS[layer]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Sequences(make(), time_first).double().eval()
        for parameter in model.parameters():
            nn.init.normal_(parameter, std=0.7)
    return model


def data(count: int):
    random = torch.Generator().manual_seed(count)
    x = torch.randn(count, LENGTH, WIDTH, generator=random, dtype=torch.float64)
    return x, torch.arange(count) % 3


# As many samples as positions, too.
@pytest.mark.parametrize("count", [1, 2, LENGTH, 2 * LENGTH, 7])
@pytest.mark.parametrize("layer", LAYERS)
def test_samples_are_found_wherever_they_are(layer, count):
    objective = fg.Objective(sequences(layer), data(count))
    squares = SquaredGradients(objective)
    assert squares.trials.singly == set()
    assert_same(squares.mean(slopes), slowly(objective))


@pytest.mark.parametrize("layer", LAYERS)
def test_batches_of_several_sizes_that_share_a_backward(layer):
    objective = fg.Objective(sequences(layer), data(8), batch_size=LENGTH)
    squares = SquaredGradients(objective)
    squares.trials = replace(squares.trials, together=True)
    assert_same(squares.mean(slopes), slowly(objective))


@pytest.mark.parametrize("layer", LAYERS)
def test_nothing_is_differentiated_singly(layer, monkeypatch):
    objective = fg.Objective(sequences(layer), data(6), dtype=torch.float32)
    squares = SquaredGradients(objective)
    monkeypatch.setattr(Shares, "singly", None)
    squares.mean(slopes)


def test_attention_to_another_sequence():
    model = Sequences(CrossAttention(WIDTH, 2, batch_first=True)).double()
    objective = fg.Objective(model, data(LENGTH))
    squares = SquaredGradients(objective)
    cut = {"layer.in_proj_weight", "layer.in_proj_bias"}
    assert squares.trials.singly == cut
    assert_same(squares.mean(slopes), slowly(objective))


@pytest.mark.parametrize("others", ["outside", "inside"])
def test_attention_is_looked_into_beside_other_modes(others):
    attention = SelfAttention(True, batch_first=True).double()
    x = data(3)[0]
    right = attention(x)
    point = dict(attention.named_parameters())
    if others == "outside":
        with ComposedWeightNorm(), OwnLayerNorms(), TapWatcher(point) as watcher:
            found = attention(x)
    else:
        with TapWatcher(point) as watcher, ComposedWeightNorm(), OwnLayerNorms():
            found = attention(x)
    assert torch.equal(found, right)
    names = {name for tap in watcher.taps for name in tap.names.values()}
    assert names == set(point)
    assert watcher.others == set()


class Mixed(nn.Module):
    """Rows that are neither in the samples' order nor behind positions."""

    def __init__(self, kind: str):
        super().__init__()
        self.kind, self.linear = kind, nn.Linear(WIDTH, WIDTH)
        self.gain = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x):
        count = len(x)
        order = torch.arange(count * LENGTH).view(count, LENGTH)
        if self.kind == "reversed":
            order = order.flip(0)
        elif self.kind == "diagonal":
            order = torch.stack([row.roll(i) for i, row in enumerate(order.mT)])
        order = order.reshape(-1)
        rows = F.relu(self.linear(x.flatten(0, 1)[order])) * self.gain
        return torch.zeros_like(rows).index_copy(0, order, rows).view_as(x)


@pytest.mark.parametrize("count", [2, LENGTH, 7])
@pytest.mark.parametrize("kind", ["reversed", "diagonal"])
def test_other_orders_go_singly(kind, count):
    objective = fg.Objective(Sequences(Mixed(kind)).double(), data(count))
    squares = SquaredGradients(objective)
    mixed = {"layer.linear.weight", "layer.linear.bias", "layer.gain"}
    assert squares.trials.singly == mixed
    assert_same(squares.mean(slopes), slowly(objective))


class LateTurn(nn.Module):
    """Time first where the last sample is negative: batches of one model differ."""

    def __init__(self):
        super().__init__()
        self.linear, self.place = (
            nn.Linear(WIDTH, WIDTH),
            nn.Parameter(torch.ones(WIDTH)),
        )

    def forward(self, x):
        turned = bool(x[-1, 0, 0] < 0)
        h = x.transpose(0, 1) if turned else x
        h = F.relu(self.linear(h) + self.place)
        return h.transpose(0, 1) if turned else h


def test_every_batch_is_looked_at():
    x, y = data(4 * LENGTH)
    x[:, 0, 0] = x[:, 0, 0].abs()
    x[2 * LENGTH :, 0, 0] *= -1
    objective = fg.Objective(Sequences(LateTurn()).double(), (x, y), batch_size=LENGTH)
    squares = SquaredGradients(objective)
    assert_same(squares.mean(slopes), slowly(objective))
    assert squares.trials.singly == set()


class Gated(nn.Module):
    """Time first: a linear layer times a gate that is a part of the input."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3, bias=False)

    def forward(self, x):
        x = x.transpose(0, 1)
        return (x[..., :1] * self.linear(x[..., 1:])).sum(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_loud_position_hides_no_layout(dtype):
    """With as many samples as positions both layouts fit within its rounding."""
    torch.manual_seed(0)
    model, x, loud = Gated(), torch.randn(LENGTH, LENGTH, 4).abs(), 1e5
    model.linear.weight.data *= 0.1
    x[0, 0, 0], x[0, 1:, 0] = loud, 1 / loud
    x[0, 0, 1:] /= loud
    data = x, torch.arange(LENGTH) % 3
    objective = fg.Objective(model, data, dtype=dtype)
    exact = slowly(fg.Objective(model, data, dtype=torch.float64))
    found = SquaredGradients(objective, signed=False).mean(slopes)
    for name, part in exact.items():
        assert torch.allclose(found[name].double(), part, rtol=1e-4, atol=0.0)
