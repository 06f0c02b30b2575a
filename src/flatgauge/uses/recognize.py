"""The matrices that the operand of a contraction consists of."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flatgauge.uses.matrices import Matrix
from flatgauge.uses.places import Memory, Places


@dataclass
class Numbering:
    """Numbers for the entries of all parameters, and of what was computed from them."""

    _names: list[str | None] = field(default_factory=list)
    _starts: list[int] = field(default_factory=list)
    _count: int = 0

    def add(self, name: str | None, count: int) -> int:
        """Number `count` more entries; return the first number."""
        self._names.append(name)
        self._starts.append(self._count)
        self._count += count
        return self._starts[-1]

    def block(self, number: int) -> int:
        """The block that a number belongs to; -1 for what is no entry."""
        return bisect_right(self._starts, number) - 1

    def blocks(self, numbers: Tensor) -> Tensor:
        """The same for a tensor of numbers."""
        return (
            torch.bucketize(
                numbers.contiguous(), torch.tensor(self._starts), right=True
            )
            - 1
        )

    def owner(self, block: int) -> tuple[str | None, int]:
        """The parameter of a block (None if it is none), and its first number."""
        return (None, 0) if block < 0 else (self._names[block], self._starts[block])


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
    heads, inverse = torch.unique(stack[:, 0, 0, 0], return_inverse=True)
    first = torch.full((heads.numel(),), stack.shape[0]).scatter_reduce(
        0, inverse, torch.arange(stack.shape[0]), "amin"
    )
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
