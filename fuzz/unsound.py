"""Parts whose backward pass is not the derivative of their forward pass."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fuzz.draw import Draw
from fuzz.parts import Facts, Part, Use


class _Detached(torch.autograd.Function):
    """tanh, whose backward pass forgets that it depends on the input."""

    @staticmethod
    def forward(ctx, x):
        y = torch.tanh(x)
        ctx.slope = (1 - y * y).detach()
        return y

    @staticmethod
    def backward(ctx, g):
        return g * ctx.slope


class _Numpy(torch.autograd.Function):
    """sin, by numpy both ways."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().cpu().numpy()).sin().to(x)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        slope = torch.from_numpy(x.detach().cpu().numpy()).cos().to(x)
        return g * slope


def _hooked(x: Tensor) -> Tensor:
    y = torch.tanh(x)
    if y.requires_grad:
        y.register_hook(lambda g: 0.5 * g)
    return y


# By what autograd gets wrong.
WAYS = {
    "straight-through": lambda x: x + (torch.round(2 * x) / 2 - x).detach(),
    "x · x.detach()": lambda x: x * x.detach(),
    "half detached": lambda x: 0.5 * (x.square() + x.detach().square()),
    "detached backward": _Detached.apply,
    "numpy backward": _Numpy.apply,
    "hooked": _hooked,
}


def unsound(draw: Draw, n: int, width: int) -> Part:
    """A random one of the parts below."""
    return (Frequency if draw.chance(0.15) else Unsound)(draw, n, width)


class Frequency(Part):
    """Rows of a table by the sign of an input, their gradients divided by their number."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.linear = nn.Linear(n, width)
        self.table = nn.Parameter(torch.ones(2, width))
        uses = [Use("linear.weight"), Use("table")]
        self.facts = Facts(uses, sound=False, label="unsound: scale_grad_by_freq")

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        rows = F.embedding((x[:, 0] > 0).long(), self.table, scale_grad_by_freq=True)
        return self.linear(h) + rows


class Unsound(Part):
    """A layer with one of the ways behind it."""

    def __init__(self, draw: Draw, n: int, width: int):
        super().__init__()
        self.width = width
        self.linear = nn.Linear(n, width)
        self.way = draw.one_of(list(WAYS))
        self.facts = Facts(
            [Use("linear.weight")], sound=False, label=f"unsound: {self.way}"
        )

    def forward(self, h: Tensor, x: Tensor) -> Tensor:
        return WAYS[self.way](self.linear(h))
