"""Which operands of a contraction are matrices, and of which rows and columns.

An operand is shown as a view [batch, out, in, ...positions]: a separate matrix for each
index of the first dimension (experts, groups), whose rows make the output, whose columns
are summed over, and whose remaining dimensions are places of a kernel. The entries of
parameters that such a view holds are then sorted into rows and columns of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatgauge.nested import tensors_in
from flatgauge.uses.matrices import Matrix
from flatgauge.uses.places import Memory, Numbering, Places, first_members

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


@dataclass(frozen=True)
class Found:
    """What one operand says of one parameter.

    Attributes:
        name: the parameter.
        matrix: a matrix that it is used as; None if the operand is none.
        outs: which axis of the matrix makes the output.
        batch: the index of the matrix in a stack.
        mixed: whether the entries cannot be put into rows and columns; without this and
            without a matrix, they are a vector that is repeated.
    """

    name: str
    matrix: Matrix | None
    outs: int = 0
    batch: int | None = None
    mixed: bool = False


def recognize(
    view: Tensor, product: tuple[Memory, ...], numbering: Numbering
) -> Iterator[Found]:
    """The matrices of every factor of a product.

    From s(U) + s(V) = row + column it follows that s(U) is of this form too if V varies
    along the rows or along the columns only.

    Args:
        view: the operand, as [batch, out, in, ...positions].
        product: the memories of the factors.
        numbering: whose entries they are.
    """
    places = [memory.seen_by(view) for memory in product]
    for number, one in enumerate(places):
        others = places[:number] + places[number + 1 :]
        lawful = all(
            not _varies(other, range(3, view.ndim))
            and not (_varies(other, [1]) and _varies(other, [2]))
            for other in others
        )
        for found in _matrices(one, numbering):
            if lawful or found.matrix is None:
                yield found
            else:
                yield Found(found.name, None, mixed=True)


def _varies(places: Places, dims: range | list[int]) -> bool:
    for dim in dims:
        if places.table is None:
            if places.sizes[dim] > 1 and places.strides[dim] != 0:
                return True
        elif bool((places.table != places.table.narrow(dim, 0, 1)).any()):
            return True
    return False


def _matrices(places: Places, numbering: Numbering) -> Iterator[Found]:
    if places.table is not None or not _distinct(places):
        yield from _from_table(places.numbers(), numbering)
        return
    name, first = numbering.owner(numbering.block(places.offset))
    if name is None:
        return
    batches, outs, ins = places.sizes[:3]
    step, out_step, in_step = places.strides[:3]
    if (outs > 1 and out_step == 0) or (ins > 1 and in_step == 0):
        yield Found(name, None)
        return
    rest = Places(places.sizes[3:], places.strides[3:]).numbers().reshape(-1)
    swapped = in_step > out_step
    for batch in range(batches if step else 1):
        start = places.offset - first + batch * step
        rows, columns = out_step * torch.arange(outs), in_step * torch.arange(ins)
        rows, columns = (columns, rows) if swapped else (rows, columns)
        yield Found(name, Matrix(start + rows, columns, rest), int(swapped), batch)


def _distinct(places: Places) -> bool:
    """Whether it is plain from the strides that no entry occurs twice in a matrix."""
    dims = sorted(
        (stride, size)
        for number, (stride, size) in enumerate(
            zip(places.strides, places.sizes, strict=True)
        )
        if size > 1 and not (stride == 0 and number < 3)
    )
    reach = 0
    for stride, size in dims:
        if stride <= reach:
            return False
        reach += stride * (size - 1)
    return True


def _from_table(numbers: Tensor, numbering: Numbering) -> Iterator[Found]:
    stack = numbers.flatten(3) if numbers.ndim > 3 else numbers[..., None]
    inverse = torch.unique(stack[:, 0, 0, 0], return_inverse=True)[1]
    first = first_members(inverse)
    # The same matrix for many samples is one.
    same = torch.equal(stack, stack[first[inverse]])
    for matrix in stack[first] if same else stack:
        blocks = numbering.blocks(matrix)
        for block in blocks.unique().tolist():
            name, start = numbering.owner(block)
            if name is not None:
                yield _one(name, matrix - start, blocks == block)


def _one(name: str, numbers: Tensor, own: Tensor) -> Found:
    """The part of a matrix that belongs to one parameter."""
    rows, columns = own.any(2).any(1), own.any(2).any(0)
    if not bool(own[rows][:, columns].all()):
        return Found(name, None, mixed=True)
    part = numbers[rows][:, columns]
    corner = part[0, 0, 0]
    r, c, p = part[:, 0, 0], part[0, :, 0] - corner, part[0, 0] - corner
    if not torch.equal(r[:, None, None] + c[:, None] + p, part):
        return Found(name, None, mixed=True)
    if part.unique().numel() < part.numel():
        vector = bool((c == c[0]).all()) or bool((r == r[0]).all())
        return Found(name, None, mixed=not vector)
    r, c, p = r.sort()[0], c.sort()[0], p.sort()[0]
    r, c, p = r + c[0] + p[0], c - c[0], p - p[0]
    swapped = r.numel() > 1 and c.numel() > 1 and c[1] > r[1] - r[0]
    if swapped:
        r, c = c + r[0], r - r[0]
    return Found(name, Matrix(r, c, p), int(bool(swapped)))
