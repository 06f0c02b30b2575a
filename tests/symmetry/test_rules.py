"""One small network for each operator: its group has the size that theory gives it.

Every call of `symmetries` applies a random element, so a rule that claims too much
fails here by refusal, and one that claims too little by its count. Each network runs
through both front-ends.
"""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from flatgauge.errors import SymmetryError
from flatgauge.symmetry import capture, symmetries
from flatgauge.symmetry.interpret import SymmetryWarning
from flatgauge.symmetry.rules import registry

SQUARE = torch.arange(8).flip(0)


class Rows(nn.Module):
    """(2, 3, 6) → linear → (2, 3, 8) → function → linear in the last dimension."""

    def __init__(self, function, width: int) -> None:
        super().__init__()
        self.first = nn.Linear(6, 8)
        self.function = function
        self.second = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.function(self.first(x)))


class Maps(nn.Module):
    """(2, 3, 8, 8) → convolution → (2, 4, 8, 8) → function → mean → linear."""

    def __init__(self, function, width: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.function = function
        self.second = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.function(self.first(x)).mean((2, 3)))


def joined(h: Tensor) -> Tensor:
    out = torch.empty_like(h)
    out[..., :4], out[..., 4:] = h[..., 4:], h[..., :4]
    return out


ROWS = {
    # f(c x) = c f(x): all 8 units stay free.
    "relu": (torch.relu, 8, 8),
    "leaky relu": (F.leaky_relu, 8, 8),
    "abs": (torch.abs, 8, 8),
    "clamp at zero": (lambda h: h.clamp(min=0), 8, 8),
    "clamp in place": (lambda h: h.clamp_(max=0.0), 8, 8),
    "double": (lambda h: 2 * h, 8, 8),
    "dropout": (nn.Dropout(0.5), 8, 8),
    "sort of casts": (lambda h: h.to(torch.float64).type_as(h), 8, 8),
    # A scale of its own: none.
    "relu6": (F.relu6, 8, 0),
    "tanh": (torch.tanh, 8, 0),
    "softmax": (lambda h: h.softmax(-1), 8, 0),
    "plus one": (lambda h: torch.relu(h + 1), 8, 0),
    "clamp at one": (lambda h: h.clamp(max=1.0), 8, 0),
    # Powers multiply exponents.
    "square": (lambda h: h**2, 8, 8),
    "root": (lambda h: h.abs().sqrt(), 8, 8),
    "ratio": (lambda h: h[..., :4] / (h[..., 4:] ** 2), 4, 8),
    # Normalized: 8 units share one scale, which cancels up to eps.
    "normalize": (lambda h: F.normalize(h, dim=-1), 8, 0),
    "softmax gate": (lambda h: h[..., :4] * h[..., 4:].softmax(-1), 4, 4),
    "product": (lambda h: h[..., :4] * h[..., 4:], 4, 8),
    "glu by hand": (lambda h: h[..., :4] * torch.sigmoid(h[..., 4:]), 4, 4),
    "glu": (lambda h: F.glu(h), 4, 4),
    # Sums tie what they add.
    "halves added": (lambda h: h[..., :4] + h[..., 4:], 4, 4),
    "maxout": (lambda h: h.view(2, 3, 4, 2).amax(-1), 4, 4),
    "max with indices": (lambda h: h.view(2, 3, 4, 2).max(-1).values, 4, 4),
    "sum": (lambda h: h.sum(-1, keepdim=True), 1, 1),
    "norm": (lambda h: h.norm(dim=-1, keepdim=True), 1, 1),
    "variance": (lambda h: h.var(-1, keepdim=True), 1, 1),
    "product of all": (lambda h: h.prod(-1, keepdim=True), 1, 1),
    "cumulative sum": (lambda h: h.cumsum(-1), 8, 1),
    "sorted": (lambda h: h.sort(-1).values, 8, 1),
    "largest": (lambda h: h.topk(3, dim=-1).values, 3, 1),
    "over time": (lambda h: h.cumsum(1), 8, 8),
    # Entries moved around stay free.
    "flip": (lambda h: h.flip(-1), 8, 8),
    "roll": (lambda h: h.roll(3, -1), 8, 8),
    "chunks": (lambda h: torch.cat(h.chunk(2, -1)[::-1], -1), 8, 8),
    "an empty part": (lambda h: torch.cat([h[..., :8], h[..., 8:]], -1), 8, 8),
    "empty parts": (lambda h: h + torch.cat([h[..., 8:], h[..., 8:]], -1).sum(), 8, 8),
    "unbind": (lambda h: torch.stack(h.unbind(-1)[::-1], -1), 8, 8),
    "repeat": (lambda h: h.repeat(1, 1, 2), 16, 8),
    "interleave": (lambda h: h.repeat_interleave(2, dim=-1), 16, 8),
    "index": (lambda h: h[..., SQUARE], 8, 8),
    "windows in memory": (lambda h: h.as_strided((2, 2, 2, 8), (24, 8, 8, 1)).mean(2), 8, 8),
    "rows askew": (lambda h: h.as_strided((2, 3, 7), (24, 7, 1)), 7, 1),
    "largest of each place": (lambda h: h.scatter_reduce(1, (h > 0).long(), h, "amax"), 8, 8),
    "product at each place": (lambda h: h.scatter_reduce(1, (h > 0).long(), h, "prod"), 8, 0),
    "index select": (lambda h: h.index_select(-1, SQUARE[:5]), 5, 8),
    "gather": (lambda h: h.gather(-1, SQUARE.expand(2, 3, 8)), 8, 8),
    # The 3 columns that only see zeros may be scaled at will, too.
    "pad": (lambda h: F.pad(h, (1, 2)), 11, 8 + 3),
    "pad with ones": (lambda h: F.pad(h, (1, 2), value=1.0), 11, 8),
    "where": (lambda h: torch.where(h > 0, h, -h), 8, 8),
    "masked": (lambda h: h.masked_fill(h < 0, 0.0), 8, 8),
    "masked by one": (lambda h: h.masked_fill(h < 0, 1.0), 8, 0),
    "unfold": (lambda h: h.unfold(-1, 4, 4).flatten(2), 8, 8),
    "lower triangle": (lambda h: h.new_ones(3, 3).tril() @ h, 8, 8),
    "time mixing": (lambda h: h.transpose(1, 2).contiguous().transpose(1, 2), 8, 8),
    "transposed view": (lambda h: h.view(2, 3, 2, 4).transpose(2, 3).flatten(2), 8, 8),
}  # fmt: skip

MAPS = {
    "max pool": (nn.MaxPool2d(2), 4, 4),
    "average pool": (nn.AvgPool2d(2), 4, 4),
    "adaptive pool": (nn.AdaptiveAvgPool2d(3), 4, 4),
    "adaptive max pool": (nn.AdaptiveMaxPool2d(2), 4, 4),
    "bilinear": (nn.Upsample(scale_factor=2, mode="bilinear"), 4, 4),
    "nearest": (nn.Upsample(scale_factor=2), 4, 4),
    "pixel shuffle": (nn.PixelShuffle(2), 1, 1),
    "pixel unshuffle": (nn.PixelUnshuffle(2), 16, 4),
    "channel shuffle": (nn.ChannelShuffle(2), 4, 4),
    "reflection": (nn.ReflectionPad2d(1), 4, 4),
    "zeros": (nn.ZeroPad2d(1), 4, 4),
    "circular": (nn.CircularPad2d(1), 4, 4),
    "prelu": (nn.PReLU(), 4, 4),
    "group norm": (nn.GroupNorm(2, 4), 4, 4),
    "instance norm": (nn.InstanceNorm2d(4, affine=True), 4, 4),
    "plain instance norm": (nn.InstanceNorm2d(4), 4, 0),
    "batch statistics": (nn.BatchNorm2d(4, track_running_stats=False), 4, 4),
    "roll": (lambda h: h.roll((1, 2), (2, 3)), 4, 4),
    "patches": (lambda h: F.fold(F.unfold(h, 3, padding=1), (8, 8), 3, padding=1), 4, 4),
    "windows": (lambda h: h.view(2, 4, 2, 4, 2, 4).transpose(3, 4).reshape(2, 4, 8, 8), 4, 4),
}  # fmt: skip

APPROXIMATE = {"normalize": 1, "group norm": 4 + 2, "instance norm": 4 + 4,
               "plain instance norm": 4, "batch statistics": 4 + 4}  # fmt: skip


@pytest.fixture(params=["export", "dispatch"])
def front_end(request, monkeypatch):
    def refuse(*_):
        raise RuntimeError("not exportable")

    if request.param == "dispatch":
        monkeypatch.setattr(capture, "export_graph", refuse)
    return request.param


def find(model: nn.Module, inputs: Tensor, front_end: str):
    group = symmetries(model, inputs, strict=True)
    assert group.front_end == front_end
    return group


REFUSED_LIVE = ("circular",)
"""It writes to memory that another tensor shares, inside of one operator."""


def skip_refused(name: str, model: nn.Module, inputs: Tensor, front_end: str) -> None:
    if name in REFUSED_LIVE and front_end == "dispatch":
        try:
            symmetries(model, inputs)
        except SymmetryError as error:
            if "shares" not in str(error):
                raise
            pytest.skip("refused, as it must be")


@pytest.mark.parametrize("name", ROWS)
def test_rows(name, front_end):
    function, width, expected = ROWS[name]
    torch.manual_seed(0)
    skip_refused(name, Rows(function, width), torch.randn(2, 3, 6), front_end)
    group = find(Rows(function, width), torch.randn(2, 3, 6), front_end)
    assert group.dimension == expected
    assert group.approximate_dimension == expected + APPROXIMATE.get(name, 0)


@pytest.mark.parametrize("name", MAPS)
def test_maps(name, front_end):
    function, width, expected = MAPS[name]
    torch.manual_seed(0)
    skip_refused(name, Maps(function, width), torch.randn(2, 3, 8, 8), front_end)
    group = find(Maps(function, width), torch.randn(2, 3, 8, 8), front_end)
    assert group.dimension == expected
    if name in APPROXIMATE:
        assert group.approximate_dimension == APPROXIMATE[name]


def test_slice_assignment_is_followed_by_export():
    assert symmetries(Rows(joined, 8), torch.randn(2, 3, 6)).dimension == 8


class Relative(nn.Module):
    """Attention with a table of relative positions, looked up by constant indices."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 2))
        self.qkv = nn.Linear(4, 12)
        self.out = nn.Linear(4, 4)
        steps = torch.arange(3)
        self.register_buffer("index", steps[:, None] - steps[None, :] + 2)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(2, 3, 3, 2, 2).permute(2, 0, 3, 1, 4)
        scores = q @ k.transpose(-2, -1) / math.sqrt(2)
        bias = self.table[self.index.view(-1)].view(3, 3, 2).permute(2, 0, 1)
        mixed = (scores + bias).softmax(-1) @ v
        return self.out(mixed.transpose(1, 2).reshape(2, 3, 4))


def test_relative_positions(front_end):
    """4 query-key and 4 value-output coordinates; the table enters a softmax."""
    assert find(Relative(), torch.randn(2, 3, 4), front_end).dimension == 8


class LayerScale(nn.Module):
    """A branch whose gain and last rows can trade scales: x + γ W₂ relu(W₁ x)."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 4)
        self.gain = nn.Parameter(torch.full((4,), 0.1))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gain * self.second(torch.relu(self.first(x)))


def test_layer_scale(front_end):
    """6 hidden units, and 4 exchanges between γ and the rows of W₂."""
    assert find(LayerScale(), torch.randn(3, 4), front_end).dimension == 10


class OtherOutputs(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 6), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        hidden = torch.relu(self.first(x))
        return {"hidden": hidden, "logits": self.second(hidden)}


def test_output_says_what_must_be_preserved():
    """Hidden states that the loss does not see may move."""
    model, x = OtherOutputs(), torch.randn(3, 4)
    assert symmetries(model, x).dimension == 6
    assert symmetries(model, x, output="hidden").dimension == 0
    assert symmetries(model, x, output=lambda r: list(r.values())).dimension == 0


def test_inputs_may_be_positional_or_named():

    class Sum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.out = nn.Linear(3, 5), nn.Linear(4, 5), nn.Linear(5, 2)

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            return self.out(torch.relu(self.a(left) + self.b(right)))

    left, right = torch.randn(2, 3), torch.randn(2, 4)
    assert symmetries(Sum(), (left, right)).dimension == 5
    assert symmetries(Sum(), {"left": left, "right": right}).dimension == 5
    with pytest.raises(SymmetryError, match="could not be run"):
        symmetries(Sum(), left)


class Recurrent(nn.Module):
    """3 units, then a recurrent layer, then a linear map of its outputs and its state."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.first, self.layer = nn.Linear(5, 3), layer
        width = (layer.proj_size or layer.hidden_size) * (1 + layer.bidirectional)
        self.second, self.third = nn.Linear(width, 2), nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        outputs, state = self.layer(torch.relu(self.first(x)))
        state = state[0] if isinstance(state, tuple) else state
        last = torch.cat(list(state[-(1 + self.layer.bidirectional) :]), -1)
        return self.second(outputs[:, -1]) + self.third(last)


RECURRENT = {
    # With 3 units before: a relu leaves each unit of each layer and direction free.
    "relu": (lambda: nn.RNN(3, 4, nonlinearity="relu", batch_first=True), 3 + 4),
    "deep relu": (
        lambda: nn.RNN(3, 4, 2, "relu", bias=False, batch_first=True),
        3 + 2 * 4,
    ),
    "both ways": (
        lambda: nn.RNN(3, 4, 2, "relu", batch_first=True, bidirectional=True),
        3 + 2 * 2 * 4,
    ),
    "tanh": (lambda: nn.RNN(3, 4, batch_first=True), 3),
    "lstm": (lambda: nn.LSTM(3, 4, 2, batch_first=True), 3),
    "projected": (lambda: nn.LSTM(3, 4, 2, batch_first=True, proj_size=2), 3 + 2 * 2),
    "gru": (lambda: nn.GRU(3, 4, batch_first=True, bidirectional=True), 3),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize("name", RECURRENT)
def test_recurrent_layers(name):
    build, expected = RECURRENT[name]
    torch.manual_seed(0)
    group = find(Recurrent(build()), torch.randn(2, 4, 5), "export")
    assert group.dimension == expected


@pytest.mark.parametrize("name", ["relu", "deep relu", "both ways", "tanh"])
def test_recurrent_layers_step_by_step(name, monkeypatch):
    """Watched while it runs, a layer is a chain of other operators: the same group."""
    build, expected = RECURRENT[name]
    torch.manual_seed(0)

    def refuse(*_):
        raise RuntimeError("not exportable")

    monkeypatch.setattr(capture, "export_graph", refuse)
    group = find(Recurrent(build()), torch.randn(2, 4, 5), "dispatch")
    assert group.dimension == expected


class Bilinear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = nn.Linear(5, 2), nn.Linear(5, 3)
        self.both, self.last = nn.Bilinear(2, 3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        mixed = self.both(torch.relu(self.left(x)), torch.relu(self.right(x)))
        return self.last(torch.relu(mixed))


def test_bilinear_forms(front_end):
    """Each of the 2 + 3 inputs and 4 outputs of the form is free."""
    assert find(Bilinear(), torch.randn(6, 5), front_end).dimension == 2 + 3 + 4


class FusedBias(nn.Module):
    """Attention whose keys have no bias: zeros stand for it among the others."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(4, 12, bias=False)
        self.query, self.value = (
            nn.Parameter(torch.randn(4)),
            nn.Parameter(torch.ones(4)),
        )
        self.register_buffer("key", torch.zeros(4), persistent=False)
        self.out = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        bias = torch.cat([self.query, self.key, self.value])
        q, k, v = F.linear(x, self.qkv.weight, bias).chunk(3, -1)
        return self.out((q @ k.mT).softmax(-1) @ v)


def test_zeros_among_biases_have_every_scale(front_end):
    """4 query-key and 4 value-output coordinates."""
    assert find(FusedBias(), torch.randn(2, 3, 4), front_end).dimension == 8


class NormOfItsOwn(nn.Module):
    """A batch norm by hand, whose running mean is zero before any training."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(3, 2)
        self.register_buffer("running_mean", torch.zeros(3))

    def forward(self, x: Tensor) -> Tensor:
        return self.second(torch.relu(self.first(x) - self.running_mean))


def test_statistics_that_are_zero_by_chance_are_fixed(front_end):
    assert find(NormOfItsOwn(), torch.randn(5, 4), front_end).dimension == 0


def test_a_rule_that_fails_holds_its_tensors_fixed(monkeypatch):
    def broken(*_):
        raise IndexError("no such thing")

    monkeypatch.setitem(registry._RULES, "aten::relu", broken)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2))
    with pytest.warns(SymmetryWarning) as told:
        group = symmetries(model, torch.randn(3, 4))
    assert any("'aten::relu' failed in module '1'" in str(one.message) for one in told)
    assert group.dimension == 0
    assert not group.complete


class Masked(nn.Module):
    """Positions of a batch that the inputs choose, by a mask over both."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)[x[..., 0] > 0]
        return self.second(h.relu()).sum(0)


def test_a_mask_over_several_dimensions():
    group = symmetries(Masked(), torch.randn(3, 5, 4), strict=True)
    assert (group.dimension, group.complete) == (8, True)
