"""Parts of plain linear layers: chains, branches, gates, residuals, norms, low rank."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from fuzz.draw import Draw
from fuzz.parts import Facts, Part, Use, activation, collect


class Dense(Part):
    """act(W h + b)."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.linear = nn.Linear(n, width, bias=draw.chance(0.7))
        self.act = activation(draw)
        self.facts = Facts(
            [Use("linear.weight")], 0, True, self.act.scales, width,
            label=f"dense {width} {self.act.name}",
        )  # fmt: skip

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return self.act(self.linear(h))


class Branches(Part):
    """Two layers side by side: summed, joined, or one gating the other."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.how = draw.one_of(("sum", "cat", "product", "gate"))
        first = max(width // 2, 1) if self.how == "cat" else width
        second = max(width - first, 1) if self.how == "cat" else width
        self.one, self.two = nn.Linear(n, first), nn.Linear(n, second, bias=False)
        self.act, self.other = activation(draw, True), activation(draw, True)
        self.width = first + second if self.how == "cat" else width
        degrees = {"relu²", "square"}
        even = (self.act.name in degrees) == (self.other.name in degrees)
        opens = self.how != "sum" or even
        self.facts = Facts(
            [Use("one.weight"), Use("two.weight")],
            width if self.how == "product" else 0,
            True, opens, self.width,
            label=f"{self.how} of {self.act.name} and {self.other.name}",
        )  # fmt: skip
        if not opens:
            self.facts.inner = None

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        a = self.act(self.one(h))
        if self.how == "gate":
            return a * torch.sigmoid(self.two(h))
        b = self.other(self.two(h))
        if self.how == "cat":
            return torch.cat([a, b], 1)
        return a + b if self.how == "sum" else a * b


class Residual(Part):
    """h + W₂ act(W₁ h), or with a scale a unit, or an in-place sum."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = n
        self.one, self.two = nn.Linear(n, width), nn.Linear(width, n)
        self.act = activation(draw)
        self.in_place = draw.chance(0.3)
        self.scale = nn.Parameter(torch.zeros(n)) if draw.chance(0.3) else None
        self.facts = Facts(
            [Use("one.weight"), Use("two.weight")],
            label=f"residual {width} {self.act.name}",
        )

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        step = self.two(self.act(self.one(h)))
        if self.scale is not None:
            step = step * self.scale
        return step.add_(h) if self.in_place else h + step


class Gain(Part):
    """A factor a unit."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = n
        self.gain = nn.Parameter(torch.ones(n))
        self.facts = Facts([], 0, True, True, n, label="gain")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return h * self.gain


class Norm(Part):
    """A normalization layer, and a linear one behind it."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        kinds = ["layer", "rms", "batch"] + (["group"] if n % 2 == 0 else [])
        self.kind = draw.one_of(kinds)
        layers = {
            "layer": lambda: nn.LayerNorm(n, elementwise_affine=draw.chance(0.8)),
            "rms": lambda: nn.RMSNorm(n, eps=1e-6),
            "batch": lambda: nn.BatchNorm1d(n, affine=draw.chance(0.8)),
            "group": lambda: nn.GroupNorm(n // 2, n),
        }
        self.norm = layers[self.kind]()
        self.linear = nn.Linear(n, width)
        self.width = width
        self.facts = Facts(
            [Use("linear.weight")],
            coupled=self.kind == "batch",
            label=f"{self.kind} norm",
        )

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return self.linear(self.norm(h))


class MaxOut(Part):
    """The larger of two linear forms a unit."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.linear = nn.Linear(n, 2 * width)
        self.facts = Facts(
            [Use("linear.weight")], 0, True, True, width, label=f"maxout {width}"
        )

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return self.linear(h).unflatten(1, (self.width, 2)).amax(2)


class WeightNorm(Part):
    """A layer under weight_norm: the direction is a matrix, its length a vector."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.linear = weight_norm(nn.Linear(n, width))
        self.act = activation(draw)
        self.precise = False
        # With one input, the lengths have the layout of the matrix.
        names = ("original1", "original0") if n == 1 else ("original1",)
        uses = [
            Use(f"linear.parametrizations.weight.{n}", optional=True) for n in names
        ]
        self.facts = Facts(uses, label="weight norm")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        if not self.precise:
            return self.act(self.linear(h))
        # The second derivative of torch's fused operator is wrong.
        parts = self.linear.parametrizations.weight
        v = parts.original1
        weight = parts.original0 * v / v.square().sum(1, keepdim=True).sqrt()
        return self.act(h @ weight.T + self.linear.bias)


class Masked(Part):
    """A pruned layer: W ∘ M."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.ones(width, n))
        self.register_buffer("mask", (draw.normal(width, n) > -0.4).float())
        self.act = activation(draw)
        self.facts = Facts([Use("weight", optional=True)], label="masked")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return self.act(h @ (self.weight * self.mask.to(h.dtype)).T)


class LowRank(Part):
    """A frozen layer with a trained product of two thin matrices (LoRA)."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        rank = draw.between(1, 2)
        self.linear = nn.Linear(n, width)
        self.linear.requires_grad_(False)
        self.down = nn.Parameter(torch.ones(rank, n))
        self.up = nn.Parameter(torch.ones(width, rank))
        self.merged = draw.chance(0.5)
        self.act = activation(draw)
        uses = [Use("down"), Use("up")]
        self.facts = Facts(uses, label=f"low rank, merged: {self.merged}")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        if self.merged:
            weight = self.linear.weight + self.up @ self.down
            return self.act(h @ weight.T + self.linear.bias)
        return self.act(self.linear(h) + (h @ self.down.T) @ self.up.T)


class InPlace(Part):
    """Slices and whole tensors overwritten on the way."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.linear = nn.Linear(n, width)
        self.gain = nn.Parameter(torch.ones(width))
        self.how = draw.one_of(("slice", "view", "fill"))
        self.facts = Facts([Use("linear.weight")], label=f"in place: {self.how}")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        y = self.linear(h)
        if self.how == "slice":
            y[:, ::2] = torch.tanh(y[:, ::2])
            return y.mul_(self.gain)
        if self.how == "view":
            flat = y.view(-1)
            flat.mul_(1.5)
            return y.relu_() * self.gain
        z = torch.empty_like(y)
        z[:, :1] = y[:, :1] * self.gain[:1]
        z[:, 1:] = y[:, 1:].relu() + y[:, :1].detach() * 0.0
        return z


class Lower(Part):
    """A layer that computes in float32 inside a network of float64."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.linear = nn.Linear(n, width)
        self.act = activation(draw)
        self.precise = False
        use = Use("linear.weight", optional=True)
        self.facts = Facts([use], rounded=True, label="in float32")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        kind = h.dtype if self.precise else torch.float32
        weight, bias = self.linear.weight.to(kind), self.linear.bias.to(kind)
        return self.act((h.to(kind) @ weight.T + bias).to(h.dtype))


class Again(Part):
    """A layer under checkpointing that recomputes its forward pass."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.linear = nn.Linear(n, width)
        self.act = activation(draw)
        self.reentrant = draw.chance(0.5)
        self.precise = False
        self.facts = Facts(
            [Use("linear.weight")], label=f"checkpointed, reentrant: {self.reentrant}"
        )

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        def layer(t: Tensor) -> Tensor:
            return self.act(self.linear(t))

        if self.precise:
            return layer(h)
        return checkpoint(layer, h, use_reentrant=self.reentrant)


class Folded(Part):
    """A layer on every entry by itself: its inputs have three dimensions, or four."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.linear = nn.Linear(1, width)
        self.deep = draw.chance(0.5)
        self.act = activation(draw)
        self.facts = Facts([Use("linear.weight")], label=f"folded {self.act.name}")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        shape = (-1, 1, h.shape[1], 1) if self.deep else (-1, h.shape[1], 1)
        return self.act(self.linear(h.reshape(shape))).flatten(1, -2).mean(1)


class Nested(Part):
    """One part inside another's residual or skip connection by concatenation."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.inner = draw.one_of((Dense, Branches, MaxOut))(draw, n, width)
        self.width = n + self.inner.width
        self.facts = Facts(
            collect([("inner", self.inner.facts)]),
            label=f"skip by cat of {self.inner.facts.label}",
        )

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return torch.cat([h, self.inner(h, x)], 1)
