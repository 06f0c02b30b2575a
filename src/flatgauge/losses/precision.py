"""How finely a user's function is computed, and the same function in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from flatgauge.losses.loss import random_signs
from flatgauge.shapes import Float

Function = Callable[..., Tensor]
# Two directions show a part of the error of a Hessian only; a slope is seen entry by entry.
MARGIN, SLOPE_MARGIN = 16.0, 4.0


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


@dataclass(frozen=True)
class OutputRounding:
    """Rounding errors of a loss's derivatives in output space, as norms over each row.

    Attributes:
        slopes: of ∇_f ℓ.
        bends: of B u, with B = ∇²_f ℓ and u of random signs.
        slope_size: ‖∇_f ℓ‖², all rows together.
        bend_size: ‖B u‖².
    """

    slopes: Float[Tensor, " R"]
    bends: Float[Tensor, " R"]
    slope_size: float
    bend_size: float


def output_rounding(
    value: Callable[[Tensor], Tensor],
    outputs: Tensor,
    apart: bool = True,
    carried: float = 0.0,
) -> OutputRounding:
    """The rounding errors of a loss's slope and of its Hessian B in output space.

    They show as a change when the outputs move by one unit in their last place. And what
    cancels has the size that derivatives have at outputs of about 1, of which one unit in
    the last place is lost. Also ⟨u, Bv⟩ − ⟨v, Bu⟩ for two random directions is rounding:
    a Hessian whose small entries cancelled is not symmetric. Scores that are infinite, as
    masks make them, have none.

    Args:
        value: the loss as a function of the outputs.
        outputs: where; their first dimension has the rows.
        apart: whether B is known to have a block for each row, symmetric by itself.
        carried: what rounds derivatives on their way from there, as a share of each row's,
            which is all that is left where those of rows that are alike cancel.
    """
    # Signs, not normal numbers: each sample weighs as much in either product.
    random = torch.Generator().manual_seed(0)
    u, v = (random_signs(outputs, random) for _ in range(2))
    (slope, first), (_, other) = (_derivatives(value, outputs, w) for w in (u, v))
    eps, size = torch.finfo(outputs.dtype).eps, finite(outputs).abs()
    beside = outputs + eps * size * v
    shrunk = outputs / (size.max().clamp_min(1.0) if size.numel() else 1.0)
    (slope_beside, moved), (slope_there, there) = (
        _derivatives(value, at, u) for at in (beside, shrunk)
    )
    rows = outputs.shape[0] if outputs.ndim else 1
    width = outputs.numel() // max(rows, 1)

    def by_row(part: Tensor) -> Tensor:
        return part.double().reshape(rows, width)

    def squares(part: Tensor) -> Tensor:
        return by_row(part).square().sum(1)

    skew = by_row(u * other - v * first).sum(1)
    skew = skew.square() if apart else skew.sum().square().expand(rows) / max(rows, 1)
    slopes = squares(slope_beside - slope) + squares(eps * slope_there)
    bends = skew + squares(moved - first) + squares(eps * there)
    # A hinge that is met: 0 here and nearby, and straight everywhere.
    flat = (squares(slope) + squares(slope_beside) + bends) == 0
    return OutputRounding(
        SLOPE_MARGIN * torch.where(flat, 0.0, slopes).sqrt()
        + carried * squares(slope).sqrt(),
        MARGIN * bends.sqrt() + carried * squares(first).sqrt(),
        float(slope.double().square().sum()),
        float(first.double().square().sum()),
    )


def finite(tensor: Tensor) -> Tensor:
    """The tensor with 0 for what is infinite or not a number."""
    return tensor.nan_to_num(nan=0.0, posinf=0.0, neginf=0.0)


def _derivatives(
    value: Callable[[Tensor], Tensor], at: Tensor, along: Tensor
) -> tuple[Tensor, Tensor]:
    """∇_f ℓ and B u; 0 where there are none."""
    point, nothing = at.detach().requires_grad_(), torch.zeros_like(at)
    # A copy: a loss may write to what it is given.
    total = value(point.clone())
    if not total.requires_grad:
        return nothing, nothing
    (slope,) = torch.autograd.grad(total, point, create_graph=True, allow_unused=True)
    if slope is None or not slope.requires_grad:
        return nothing if slope is None else finite(slope), nothing
    (bend,) = torch.autograd.grad(slope, point, along, allow_unused=True)
    return finite(slope.detach()), nothing if bend is None else finite(bend)
