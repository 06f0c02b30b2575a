"""Parts whose parameters hold several matrices, or serve in several places."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fuzz.draw import Draw
from fuzz.parts import Facts, Part, Use, activation, below, beside, pieces, stack


class Sliced(Part):
    """One parameter, whose first rows are a layer and whose others are the next."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.n, self.width = n, width
        self.weight = nn.Parameter(torch.ones(n + width, n))
        self.act = activation(draw, True)
        self.how = draw.one_of(("slice", "split", "narrow"))
        self.facts = Facts(
            [Use("weight", (pieces(n, width),), optional=True, separate=True)],
            n, True, True, width, label=f"two layers by {self.how} {self.act.name}",
        )  # fmt: skip

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        w, n = self.weight, self.n
        if self.how == "slice":
            one, two = w[:n], w[n:]
        elif self.how == "split":
            one, two = w.split([n, self.width])
        else:
            one, two = w.narrow(0, 0, n), w.narrow(0, n, self.width)
        return self.act(h @ one.T) @ two.T


class Stacked(Part):
    """A stack [L, n, n] whose matrices are the layers of a chain."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = n
        self.depth = draw.between(2, 3)
        self.weight = nn.Parameter(torch.ones(self.depth, n, n))
        self.act = activation(draw, True)
        self.unbind = draw.chance(0.5)
        self.facts = Facts(
            [Use("weight", (stack,), optional=True, separate=True)],
            n * (self.depth - 1), True, True, n,
            label=f"stack of {self.depth} {self.act.name}",
        )  # fmt: skip

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        layers = self.weight.unbind(0) if self.unbind else list(self.weight)
        for depth, layer in enumerate(layers):
            h = h @ layer.T
            h = self.act(h) if depth + 1 < self.depth else h
        return h


class Heads(Part):
    """Every head its own two layers, by bmm, einsum or matmul."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.heads = draw.between(2, 3)
        hidden, out = draw.between(1, 3), max(width // self.heads, 1)
        self.width = self.heads * out
        self.up = nn.Parameter(torch.ones(self.heads, n, hidden))
        self.down = nn.Parameter(torch.ones(self.heads, hidden, out))
        self.act = activation(draw, True)
        self.how = draw.one_of(("bmm", "einsum", "matmul"))
        # All heads have the same inputs: one einsum makes one matrix of them.
        up = (stack, beside) if self.how == "einsum" else (stack,)
        uses = [Use("up", up, True, True), Use("down", (stack,), True, True)]
        self.facts = Facts(
            uses, self.heads * hidden, True, True, self.width,
            label=f"{self.heads} heads by {self.how} {self.act.name}",
        )  # fmt: skip

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        if self.how == "einsum":
            y = self.act(torch.einsum("bn,enh->beh", h, self.up))
            return torch.einsum("beh,eho->beo", y, self.down).flatten(1)
        wide = h.expand(self.heads, *h.shape)
        if self.how == "bmm":
            y = torch.bmm(self.act(torch.bmm(wide, self.up)), self.down)
        else:
            y = self.act(h @ self.up) @ self.down
        return y.transpose(0, 1).flatten(1)


class Viewed(Part):
    """A 3-D parameter that is used as a matrix [n, heads · out]."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = 2 * max(width // 2, 1)
        self.weight = nn.Parameter(torch.ones(n, 2, self.width // 2))
        self.act = activation(draw)

        def flat(tensor: Tensor) -> list[Tensor]:
            return [tensor.flatten(1)]

        use = Use("weight", (flat,), optional=True)
        self.facts = Facts(
            [use], 0, True, self.act.scales, self.width, label="3-D viewed as 2-D"
        )

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return self.act(h @ self.weight.flatten(1))


class Shared(Part):
    """One layer applied twice."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = n
        self.linear = nn.Linear(n, n)
        self.act = activation(draw)
        self.facts = Facts([Use("linear.weight")], label=f"shared {self.act.name}")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return self.linear(self.act(self.linear(h)))


class Transposed(Part):
    """W and Wᵀ: a tied code."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = n
        self.linear = nn.Linear(n, width)
        self.act = activation(draw)
        # Where the list is, no attribute names the parameter a second time.
        self.past = draw.chance(0.6)
        self.tied = [self.linear.weight] if self.past else None
        self.facts = Facts([Use("linear.weight")], label=f"tied, past: {self.past}")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        weight = self.linear.weight if self.tied is None else self.tied[0]
        return self.act(self.linear(h)) @ weight


class Mixed(Part):
    """A matrix that also enters entry by entry."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.linear = nn.Linear(n, width)
        self.how = draw.one_of(("sum", "square", "symmetric"))
        self.act = activation(draw)
        use = Use("linear.weight", optional=True)
        self.facts = Facts([use], label=f"matrix and entries: {self.how}")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        weight = self.linear.weight
        y = self.act(self.linear(h))
        if self.how == "sum":
            return y + 0.1 * weight.sum(1)
        if self.how == "square":
            return y + 0.1 * weight.square().mean()
        return y + 0.1 * h @ (weight + weight.flip(1)).T


class SoftExperts(Part):
    """Experts in one einsum, mixed by a softmax."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        experts, hidden = 2, draw.between(1, 3)
        self.gate = nn.Linear(n, experts)
        self.up = nn.Parameter(torch.ones(experts, n, hidden))
        self.down = nn.Parameter(torch.ones(experts, hidden, width))
        self.act = activation(draw, True)
        uses = [
            Use("up", (stack, beside), True, True),
            Use("down", (stack, below), True, True),
        ]
        self.facts = Facts(
            [Use("gate.weight"), *uses], experts * hidden, True, True, width,
            label=f"soft experts {self.act.name}",
        )  # fmt: skip

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        shares = self.gate(h).softmax(1)
        y = self.act(torch.einsum("bn,enh->beh", h, self.up))
        return torch.einsum("be,beh,eho->bo", shares, y, self.down)


class Experts(Part):
    """Two experts; the sign of the first raw input chooses."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        hidden = draw.between(1, 3)
        self.up = nn.ModuleList(nn.Linear(n, hidden) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(hidden, width) for _ in range(2))
        self.acts = nn.ModuleList(activation(draw) for _ in range(2))
        self.how = draw.one_of(("index_add", "index_copy", "where", "boolean"))
        names = [f"{kind}.{i}.weight" for kind in ("up", "down") for i in range(2)]
        acts = "/".join(one.name for one in self.acts)
        self.facts = Facts(
            # An expert that no sample reaches may be left out.
            [
                Use(name, optional=self.how in ("index_add", "index_copy"))
                for name in names
            ],
            label=f"experts by {self.how} {acts}",
        )

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        right = x[:, 0] > 0
        out = h.new_zeros(h.shape[0], self.width)
        for index, chosen in enumerate((right, ~right)):
            up, act, down = self.up[index], self.acts[index], self.down[index]
            if self.how == "where":
                out = torch.where(chosen[:, None], down(act(up(h))), out)
                continue
            rows = chosen.nonzero()[:, 0]
            if self.how != "boolean" and not len(rows):
                continue
            y = down(act(up(h[rows])))
            if self.how == "index_add":
                out = out.index_add(0, rows, y)
            elif self.how == "index_copy":
                out = out.index_copy(0, rows, y)
            else:
                out[chosen] = y
        return out


class Sleeping(Part):
    """A branch that only some samples wake up."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.always, self.sometimes = nn.Linear(n, width), nn.Linear(n, width)
        self.act = activation(draw)
        self.skip = draw.chance(0.5)
        self.facts = Facts(
            [Use("always.weight"), Use("sometimes.weight", optional=self.skip)],
            label=f"sleeping branch {self.act.name}, skipped: {self.skip}",
        )

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        y = self.always(h)
        awake = x[:, 0] > 0.3
        if self.skip and not bool(awake.any()):
            return y
        return y + awake[:, None] * self.act(self.sometimes(h))
