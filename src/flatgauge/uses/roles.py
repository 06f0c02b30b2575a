"""The operands of contractions, with the part that each dimension plays.

An operand is shown as a view [batch, out, in, ...positions]: a separate matrix for each
index of the first dimension (experts, groups), whose rows make the output, whose columns
are summed over, and whose remaining dimensions are places of a kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from flatgauge.nested import tensors_in

RECURRENT = (
    "mkldnn_rnn_layer",
    "_cudnn_rnn",
    "miopen_rnn",
    "lstm",
    "gru",
    "rnn_tanh",
    "rnn_relu",
)
ATTENTION = "scaled_dot_product"


@dataclass(frozen=True)
class Operand:
    """One operand of a contraction.

    Attributes:
        view: the operand as [batch, out, in, ...positions].
        marks: along each dimension of the output, the step in batch · outs + out; None
            where the output does not tell the rows apart.
        table: whether rows are looked up rather than summed over.
        batched: whether there is a batch dimension for look-ups by index.
    """

    view: Tensor
    marks: tuple[int, ...] | None = None
    table: bool = False
    batched: bool = False


def operands(name: str, args: tuple[Any, ...], ndim: int) -> list[Operand] | None:
    """The operands of the operator `name`, or None if it is no contraction.

    Args:
        name: of the ATen operator, without its overload.
        args: its arguments.
        ndim: the number of dimensions of its output.
    """
    if name in RECURRENT:
        return [Operand(t[None]) for t in tensors_in(list(args)) if t.ndim == 2]
    found = _ROLES.get(name)
    return None if found is None else found(args, ndim)


def _mm(args: tuple[Any, ...], ndim: int) -> list[Operand]:
    left, right = args[:2]
    return [Operand(left[None], (1, 0)), Operand(right.t()[None], (0, 1))]


def _bmm(args: tuple[Any, ...], ndim: int) -> list[Operand]:
    left, right = args[0], args[1].transpose(1, 2)
    return [
        Operand(left, (_apart(left), 1, 0), batched=True),
        Operand(right, (_apart(right), 0, 1), batched=True),
    ]


def _apart(operand: Tensor) -> int:
    """The rows of one matrix of a stack, or 0 where all are the same matrix."""
    return 0 if operand.stride(0) == 0 else operand.shape[1]


def _mv(args: tuple[Any, ...], ndim: int) -> list[Operand]:
    return [Operand(args[0][None], (1,))]


def _linear(args: tuple[Any, ...], ndim: int) -> list[Operand]:
    return [Operand(args[1][None], (0,) * (ndim - 1) + (1,))]


def _convolution(args: tuple[Any, ...], ndim: int) -> list[Operand]:
    kernel, transposed, groups = args[1], args[6], args[8]
    view = kernel.unflatten(0, (groups, -1))
    if transposed:
        view = view.transpose(1, 2)
    return [Operand(view, (0, 1) + (0,) * (ndim - 2))]


def _embedding(args: tuple[Any, ...], ndim: int) -> list[Operand]:
    return [Operand(args[0][None], table=True)]


def _grouped(args: tuple[Any, ...], ndim: int) -> list[Operand]:
    return [Operand(t.transpose(1, 2)) for t in args[:2] if t.ndim == 3]


_ROLES: dict[str, Callable[[tuple[Any, ...], int], list[Operand]]] = {
    "mm": _mm,
    "addmm": lambda args, ndim: _mm(args[1:], ndim),
    "bmm": _bmm,
    "baddbmm": lambda args, ndim: _bmm(args[1:], ndim),
    "mv": _mv,
    "addmv": lambda args, ndim: _mv(args[1:], ndim),
    "linear": _linear,
    "convolution": _convolution,
    "embedding": _embedding,
    "_embedding_bag": _embedding,
    "_embedding_bag_forward_only": _embedding,
    "_grouped_mm": _grouped,
}
