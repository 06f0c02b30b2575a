"""Stems over sequences: embeddings, recurrences, attention, time-first layouts."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuzz.draw import Draw
from fuzz.parts import Facts, Use, activation, chunks, pieces, whole
from fuzz.stems import Stem


class Tokens(Stem):
    """An embedding, averaged, flattened, or one feature vector a token."""

    def __init__(self, draw: Draw):
        super().__init__()
        self.vocabulary, self.length = draw.between(3, 5), draw.between(2, 3)
        n = draw.between(2, 3)
        self.table = nn.Embedding(self.vocabulary, n)
        self.position = nn.Parameter(torch.ones(self.length, n))
        self.how = draw.one_of(("mean", "flat", "tokens"))
        self.by_token = self.how == "tokens"
        self.width = n * self.length if self.how == "flat" else n
        self.facts = Facts([Use("table.weight")], label=f"embedding {self.how}")

    def inputs(self, draw: Draw, count: int) -> Tensor:
        return draw.integers(self.vocabulary, count, self.length)

    def forward(self, x: Tensor) -> Tensor:
        h = self.table(x) + self.position
        if self.how == "tokens":
            return h
        return h.mean(1) if self.how == "mean" else h.flatten(1)


class Sequence(Stem):
    """Vectors in time."""

    def __init__(self, draw: Draw):
        super().__init__()
        self.length, self.features = draw.between(2, 4), draw.between(2, 3)

    def inputs(self, draw: Draw, count: int) -> Tensor:
        return draw.normal(count, self.length, self.features)


class Recurrent(Sequence):
    """RNN, GRU or LSTM, by torch's layer or cell by cell."""

    def __init__(self, draw: Draw):
        super().__init__(draw)
        self.width = draw.between(2, 3)
        self.how = draw.one_of(("rnn", "rnn relu", "gru", "lstm", "cell"))
        n, m = self.features, self.width
        if self.how == "cell":
            self.layer = nn.RNNCell(n, m, nonlinearity=draw.one_of(("tanh", "relu")))
        else:
            kinds = {"rnn": nn.RNN, "rnn relu": nn.RNN, "gru": nn.GRU, "lstm": nn.LSTM}
            more = {"nonlinearity": "relu"} if self.how == "rnn relu" else {}
            self.layer = kinds[self.how](n, m, batch_first=True, **more)
        gates = {"gru": 3, "lstm": 4}.get(self.how, 1)
        views = (whole, chunks(gates)) if gates > 1 else (whole,)
        end = "" if self.how == "cell" else "_l0"
        uses = [Use(f"layer.weight_{kind}{end}", views, True) for kind in ("ih", "hh")]
        self.facts = Facts(uses, label=self.how)

    def forward(self, x: Tensor) -> Tensor:
        if self.how != "cell":
            return self.layer(x)[0][:, -1]
        h = x.new_zeros(x.shape[0], self.width)
        for step in x.unbind(1):
            h = self.layer(step, h)
        return h


class Attention(Sequence):
    """Torch's layer, or a fused projection cut in three, causal or not."""

    def __init__(self, draw: Draw):
        super().__init__(draw)
        self.features = self.width = 2 * draw.between(1, 2)
        n = self.width
        self.how = draw.one_of(("torch", "chunk", "grouped", "separate"))
        self.causal = draw.chance(0.5)
        self.heads = draw.between(1, 2)
        three = (chunks(3),)
        if self.how == "torch":
            self.layer = nn.MultiheadAttention(n, self.heads, batch_first=True)
            uses = [Use("layer.in_proj_weight", three), Use("layer.out_proj.weight")]
        elif self.how == "separate":
            self.q, self.k, self.v = (nn.Linear(n, n) for _ in range(3))
            uses = [Use(f"{name}.weight") for name in "qkv"]
        else:
            self.heads = 2
            small = n if self.how == "chunk" else n // 2
            self.cut = (n, small, small)
            self.mixer = nn.Linear(n, sum(self.cut))
            views = three if self.how == "chunk" else (pieces(*self.cut), whole)
            uses = [Use("mixer.weight", views)]
        self.facts = Facts(uses, label=f"attention {self.how} {self.heads}")

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "torch":
            return self.layer(x, x, x, need_weights=False)[0].mean(1)
        if self.how == "separate":
            heads, parts = 1, (self.q(x), self.k(x), self.v(x))
        else:
            heads, parts = self.heads, self.mixer(x).split(self.cut, -1)
        each = x.shape[-1] // heads
        q, k, v = (t.unflatten(-1, (-1, each)).transpose(1, 2) for t in parts)
        if self.how == "grouped":
            k, v = (t.repeat_interleave(heads, 1) for t in (k, v))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return mixed.transpose(1, 2).flatten(2).mean(1)


class TimeFirst(Sequence):
    """A layer on [T · B, n]: the rows of a sample are not neighbours."""

    def __init__(self, draw: Draw):
        super().__init__(draw)
        self.width = draw.between(2, 4)
        self.linear = nn.Linear(self.features, self.width)
        self.act = activation(draw)
        self.facts = Facts(
            [Use("linear.weight")], 0, False, self.act.scales, self.width,
            label=f"time first {self.act.name}",
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        rows = x.transpose(0, 1).reshape(-1, self.features)
        h = self.act(self.linear(rows))
        return h.reshape(self.length, -1, self.width).mean(0)
