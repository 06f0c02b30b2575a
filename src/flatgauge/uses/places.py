"""Which numbered entry each element of a tensor holds.

Entries are numbered across all parameters. A tensor that a network makes of its weights
by moving entries around (views, copies, transpositions, slices) holds entry
offset + Σ_d index_d · stride_d almost always; where it does not (after a look-up by
index, say), a table of the numbers is kept instead.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod

import torch
from torch import Tensor

NONE = -1
"""The number of what is no entry of any parameter."""


@dataclass(frozen=True)
class Places:
    """The entry at every index of a tensor.

    Attributes:
        sizes: of the tensor.
        strides: how the entry's number changes along each dimension.
        offset: the entry at index 0.
        table: the numbers themselves, where they are not affine in the index.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...] = ()
    offset: int = 0
    table: Tensor | None = None

    @staticmethod
    def of(table: Tensor) -> Places:
        """Entries that are looked up in a table of the tensor's own shape."""
        return Places(tuple(table.shape), table=table)

    def numbers(self) -> Tensor:
        """The entries as an int64 tensor of the tensor's shape."""
        if self.table is not None:
            return self.table
        total = torch.tensor(self.offset)
        for dim, (size, stride) in enumerate(
            zip(self.sizes, self.strides, strict=True)
        ):
            steps = stride * torch.arange(size)
            total = total + steps.reshape([-1] + [1] * (len(self.sizes) - dim - 1))
        return total.expand(self.sizes)

    def expand(self, sizes: Sequence[int]) -> Places:
        """Broadcast to a larger shape."""
        if tuple(sizes) == self.sizes:
            return self
        if self.table is not None:
            return Places.of(self.table.expand(tuple(sizes)))
        lead = len(sizes) - len(self.sizes)
        own = (1,) * lead + self.sizes
        strides = tuple(
            stride if size == wanted else 0
            for size, wanted, stride in zip(
                own, sizes, (0,) * lead + self.strides, strict=True
            )
        )
        return Places(tuple(sizes), strides, self.offset)


@dataclass(frozen=True)
class Memory:
    """The entry at every position of a block of memory.

    Attributes:
        cut: the entries of the block, cut into sizes, row by row.
    """

    cut: Places

    @staticmethod
    def whole(length: int, first: int) -> Memory:
        """Entries in order from the number `first`."""
        return Memory(Places((length,), (1,), first))

    @staticmethod
    def behind(tensor: Tensor, places: Places) -> Memory:
        """The memory of a new tensor that holds these entries."""
        plain = Memory.dense(tensor, places)
        if plain is not None:
            return plain
        length = tensor.untyped_storage().nbytes() // tensor.element_size()
        table = torch.full((length,), NONE)
        table.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset()).copy_(
            places.numbers()
        )
        return Memory(Places.of(table))

    @staticmethod
    def dense(tensor: Tensor, places: Places) -> Memory | None:
        """The same if it takes no table, else None."""
        order = sorted(range(tensor.ndim), key=lambda d: -tensor.stride(d))
        kept = [d for d in order if tensor.shape[d] > 1]
        step = 1
        if places.table is not None or tensor.storage_offset():
            return None
        for d in reversed(kept):
            if tensor.stride(d) != step:
                return None
            step *= tensor.shape[d]
        pairs = _joined([(places.sizes[d], places.strides[d]) for d in kept])
        sizes, strides = zip(*pairs, strict=True) if pairs else ((1,), (0,))
        return Memory(Places(tuple(sizes), tuple(strides), places.offset))

    def seen_by(self, tensor: Tensor) -> Places:
        """What a tensor on this memory holds."""
        affine = self.affine(tensor)
        if affine is not None:
            return affine
        return Places.of(
            self.numbers().as_strided(
                tensor.shape, tensor.stride(), tensor.storage_offset()
            )
        )

    def affine(self, tensor: Tensor) -> Places | None:
        """The same if it takes no table, else None."""
        sizes = tuple(tensor.shape)
        if not tensor.numel():
            return Places(sizes, (0,) * len(sizes))
        if self.cut.table is not None:
            return None
        starts = self._unravel(int(tensor.storage_offset()))
        changes = [
            self._along(size, stride)
            for size, stride in zip(sizes, tensor.stride(), strict=True)
        ]
        if None in changes or not self._stays_inside(tensor, starts):
            return None
        moved = zip(starts, self.cut.strides, strict=True)
        offset = self.cut.offset + sum(index * stride for index, stride in moved)
        return Places(sizes, tuple(change or 0 for change in changes), offset)

    def around(self, tensor: Tensor) -> Places:
        """What lies between the first and the last element of a tensor, or more."""
        first = int(tensor.storage_offset())
        steps = zip(tensor.shape, tensor.stride(), strict=True)
        last = first + sum((size - 1) * stride for size, stride in steps)
        sizes, offset, apart = [], self.cut.offset, False
        for low, high, size, stride in zip(
            self._unravel(first),
            self._unravel(int(last)),
            self.cut.sizes,
            self.cut.strides,
            strict=True,
        ):
            offset += 0 if apart else low * stride
            sizes.append(size if apart else high - low + 1)
            apart |= low != high
        return Places(tuple(sizes), self.cut.strides, offset)

    def numbers(self) -> Tensor:
        """The entries as a flat int64 tensor."""
        return self.cut.numbers().reshape(-1)

    def _cuts(self) -> list[tuple[int, int]]:
        """How far apart neighbours along each cut are, in memory and in number."""
        sizes = self.cut.sizes
        steps = [prod(sizes[d + 1 :]) for d in range(len(sizes))]
        return list(zip(steps, self.cut.strides, strict=True))

    def _unravel(self, position: int) -> list[int]:
        found = []
        for size in reversed(self.cut.sizes):
            position, index = divmod(position, size)
            found.append(index)
        return found[::-1]

    def _along(self, size: int, stride: int) -> int | None:
        """The change of the entry's number along one dimension of a view."""
        if stride == 0:
            return 0
        for step, change in self._cuts():
            if stride % step == 0:
                return change * (stride // step)
        return 0 if size <= 1 else None

    def _stays_inside(self, tensor: Tensor, starts: list[int]) -> bool:
        """Whether the steps along all dimensions together leave no cut."""
        reach = list(starts)
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            for number, (step, _) in enumerate(self._cuts()):
                if stride % step == 0:
                    reach[number] += (size - 1) * (stride // step)
                    break
        return all(r < n for r, n in zip(reach, self.cut.sizes, strict=True))


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
        starts = torch.tensor(self._starts)
        return torch.bucketize(numbers.contiguous(), starts, right=True) - 1

    def owner(self, block: int) -> tuple[str | None, int]:
        """The parameter of a block (None if it is none), and its first number."""
        return (None, 0) if block < 0 else (self._names[block], self._starts[block])


def first_members(classes: Tensor) -> Tensor:
    """The place of the first member of each class; classes are numbered from 0."""
    count, places = int(classes.max()) + 1, torch.arange(classes.numel())
    return torch.full((count,), len(places)).scatter_reduce(0, classes, places, "amin")


def _joined(pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Neighbouring cuts as one, where the number changes evenly across both."""
    joined: list[tuple[int, int]] = []
    for size, stride in pairs:
        if joined and joined[-1][1] == stride * size:
            size *= joined.pop()[0]
        joined.append((size, stride))
    return joined
