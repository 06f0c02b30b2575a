"""Networks whose backward is not the derivative of their forward."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn


class Detached(torch.autograd.Function):
    """x³, whose backward takes x as a constant: the gradient is right, H is not."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        return slope * 3 * x.detach() ** 2


class ByNumpy(torch.autograd.Function):
    """tanh, with a backward that torch cannot see through."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return torch.tanh(x)

    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        factor = 1 - torch.from_numpy(x.detach().cpu().numpy()).tanh() ** 2
        return slope * factor.to(slope.device)


class Recomputed(torch.autograd.Function):
    """Checkpointing of one's own: runs the function again in the backward pass."""

    @staticmethod
    def forward(ctx, function, x):
        ctx.function = function
        ctx.save_for_backward(x)
        with torch.no_grad():
            return function(x)

    @staticmethod
    def backward(ctx, slope):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            again = x.detach().requires_grad_()
            torch.autograd.backward(ctx.function(again), slope)
        return None, again.grad


class Cube(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return Detached.apply(x)


class NumpyTanh(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return ByNumpy.apply(x)


class Hooked(nn.Module):
    """Halves the gradient on its way back."""

    def forward(self, x: Tensor) -> Tensor:
        h = x.tanh()
        if h.requires_grad:
            h.register_hook(lambda slope: 0.5 * slope)
        return h


class StraightThrough(nn.Module):
    """Rounds, and passes the gradient on."""

    def forward(self, x: Tensor) -> Tensor:
        return x + ((4 * x).round() / 4 - x).detach()


class HalfDetached(nn.Module):
    """x², with half of its derivative."""

    def forward(self, x: Tensor) -> Tensor:
        return x * x.detach()


class OwnCheckpoint(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.inner = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        return Recomputed.apply(lambda h: self.inner(h).tanh(), x)


PARTS: dict[str, Callable[[int], nn.Module]] = {
    "detached": lambda _: Cube(),
    "numpy": lambda _: NumpyTanh(),
    "hook": lambda _: Hooked(),
    "straight-through": lambda _: StraightThrough(),
    "half-detached": lambda _: HalfDetached(),
    "own-checkpoint": OwnCheckpoint,
}
