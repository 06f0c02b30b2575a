"""A user's function in float64, whatever precision it was written in."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from flatgauge.losses.loss import random_signs

Function = Callable[..., Tensor]
# Two directions show a part of the error only.
MARGIN = 16.0


class InDouble(TorchFunctionMode):
    """Every torch function inside takes float32 for float64: tensors, casts and dtypes.

    So a function with float32 weights of its own, or with casts, is computed in float64,
    where p (1 − p) for p near 1 keeps its digits. Each float32 tensor has one copy in
    float64 that stands for it as long as this lasts, also where it is written to.
    """

    def __init__(self) -> None:
        super().__init__()
        self._copies: dict[int, tuple[Tensor, Tensor]] = {}

    def call(self, function: Function, *arguments: Any) -> Tensor:
        """The function of these arguments, in float64."""
        with self:
            return function(*tree_map(self._wide, arguments))

    def __torch_function__(
        self,
        func: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is Tensor.float:
            return self._wide(args[0])
        return func(*tree_map(self._wide, args), **tree_map(self._wide, kwargs or {}))

    def _wide(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype == torch.float32:
            # With the tensor itself, whose id could be another's otherwise.
            kept = self._copies.setdefault(id(value), (value, value.double()))
            return kept[1]
        return torch.float64 if value is torch.float32 else value


def second_derivative_rounding(
    value: Callable[[Tensor], Tensor], outputs: Tensor, apart: bool = True
) -> tuple[float, float]:
    """The rounding error of a loss's Hessian B in output space, and its size.

    For two random directions u and v the rounding shows as ⟨u, Bv⟩ − ⟨v, Bu⟩: a Hessian
    whose small entries cancelled is not symmetric. It shows as the change of Bu when the
    outputs move by one unit in their last place. And what cancels has the size that Bu
    has at outputs of about 1, of which one unit in the last place is lost.

    Args:
        value: the loss as a function of the outputs.
        outputs: where.
        apart: whether B has a block for each row, which is symmetric by itself.

    Returns:
        The error, with some margin, and the size of Bu; both squared, to be summed.
    """
    # Signs, not normal numbers: each sample weighs as much in either product.
    random = torch.Generator().manual_seed(0)
    u, v = (random_signs(outputs, random) for _ in range(2))
    first, other = _products(value, outputs, u), _products(value, outputs, v)
    ulp = torch.finfo(outputs.dtype).eps * outputs.abs() * v
    moved = _products(value, outputs + ulp, u)
    rows = outputs.shape[0] if outputs.ndim and apart else 1
    skew = (u * other - v * first).reshape(rows, -1).double().sum(1)
    shrunk = _products(value, outputs / outputs.abs().max().clamp_min(1.0), u)
    error = skew.square().sum() + (moved - first).double().square().sum()
    error = error + (torch.finfo(outputs.dtype).eps * shrunk.double().norm()) ** 2
    return MARGIN**2 * float(error), float(first.double().square().sum())


def _products(value: Callable[[Tensor], Tensor], at: Tensor, along: Tensor) -> Tensor:
    point = at.detach().requires_grad_()
    total = value(point)
    if not total.requires_grad:
        return torch.zeros_like(at)
    (slope,) = torch.autograd.grad(total, point, create_graph=True, allow_unused=True)
    if slope is None or not slope.requires_grad:
        return torch.zeros_like(at)
    (bend,) = torch.autograd.grad(slope, point, along, allow_unused=True)
    return torch.zeros_like(at) if bend is None else bend
