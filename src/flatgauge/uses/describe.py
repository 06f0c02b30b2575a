"""All the ways in which one parameter was used, put together into one description.

If a rescaling of single entries preserves a contraction with a matrix, it rescales that
matrix by rows and columns. So one contraction that an entry takes part in is enough to
place it; others can only bind it further.

Query, key and value are often one matrix whose output is cut in three. The rows of such
a matrix are told apart by where their outputs arrive: as which operand of which product
of two activations.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flatgauge.uses.matrices import Matrices, Matrix
from flatgauge.uses.places import Memory, Places, first_members


@dataclass
class Use:
    """One matrix that a parameter was used as.

    Attributes:
        matrix: the matrix, with the earlier dimension of the parameter as its rows.
        outs: 0 if its rows make the output of the contraction, 1 if its columns do.
        table: whether it was only looked up in.
        classes: by axis: rows (columns) that parts of an output tell apart.
    """

    matrix: Matrix
    outs: int
    table: bool
    classes: dict[int, Tensor] = field(default_factory=dict)

    def tell_apart(self, classes: Tensor, axis: int) -> None:
        """Take note that outputs of different classes went different ways."""
        known = self.classes.get(axis, torch.zeros_like(classes))
        pairs = torch.stack([known, classes], 1)
        self.classes[axis] = _ranked(torch.unique(pairs, dim=0, return_inverse=True)[1])

    def join(self, other: Use) -> None:
        """Take over what was seen elsewhere of the same matrix."""
        self.table &= other.table
        for axis, classes in other.classes.items():
            self.tell_apart(classes, axis)


@dataclass
class Seen:
    """What was seen of one parameter.

    Attributes:
        uses: its matrices, by what tells them from each other.
        alone: whether nothing else was done with it.
        mixed: whether it was contracted in a way that is no matrix.
    """

    uses: dict[Hashable, Use] = field(default_factory=dict)
    alone: bool = True
    mixed: bool = False

    def join(self, other: Seen) -> None:
        """Take over what was seen elsewhere of the same parameter."""
        self.alone &= other.alone
        self.mixed |= other.mixed
        for key, use in other.uses.items():
            if key in self.uses:
                self.uses[key].join(use)
            else:
                self.uses[key] = use

    def describe(self, count: int, apart: bool) -> Matrices | None:
        """The matrices of a parameter with `count` entries; None if there are none.

        Args:
            count: the number of its entries.
            apart: whether rows whose outputs went separate ways are separate matrices.
        """
        if self.mixed or not self.uses:
            return None
        placed = _placed(self.uses.values(), count)
        if placed is None:
            self.mixed = True
            return None
        parts = [
            part for use in placed for part in (_split(use) if apart else [use.matrix])
        ]
        parts.sort(key=lambda part: int(part.rows[0] + part.columns[0]))
        rest = _complement(parts, count)
        table = all(use.table for use in self.uses.values())
        return Matrices(tuple(parts), rest, table, self.alone)


@dataclass(frozen=True)
class Tag:
    """Memory that holds outputs of one contraction: the entries are their rows."""

    call: int
    memory: Memory

    def rows(self, view: Tensor) -> Tensor:
        """The rows whose outputs a tensor on this memory holds, or more."""
        held = self.memory.affine(view) or self.memory.around(view)
        kept = tuple(
            n if s else 1 for n, s in zip(held.sizes, held.strides, strict=True)
        )
        return Places(kept, held.strides, held.offset).numbers().unique()

    def copied(self, view: Tensor, result: Tensor) -> Tag | None:
        """The tag of a new tensor with the same rows at the same places."""
        held = self.memory.affine(view)
        return None if held is None else Tag.on(result, held, self.call)

    @staticmethod
    def on(result: Tensor, places: Places, call: int) -> Tag | None:
        """The tag of a new tensor, if its memory is without gaps."""
        memory = Memory.dense(result, places)
        return None if memory is None else Tag(call, memory)


@dataclass
class Outputs:
    """The contractions of a run, and where their outputs arrived."""

    _uses: list[list[tuple[Use, int]]] = field(default_factory=list)
    _read: dict[int, list[Tensor]] = field(default_factory=dict)

    def add(self, uses: list[tuple[Use, int]]) -> int:
        """A contraction with these matrices and their first rows; returns its number."""
        self._uses.append(uses)
        return len(self._uses) - 1

    def arrive(self, operands: Iterable[tuple[Tensor, Tag | None]]) -> None:
        """The operands of a product of activations."""
        for view, tag in operands:
            if tag is not None:
                self._read.setdefault(tag.call, []).append(tag.rows(view))

    def tell_apart(self) -> None:
        """Let every matrix know which of its rows went separate ways."""
        for call, arrivals in self._read.items():
            for use, start in self._uses[call]:
                axis = (use.matrix.rows, use.matrix.columns)[use.outs]
                own = torch.arange(start, start + axis.numel())
                ways = torch.stack([torch.isin(own, rows) for rows in arrivals], 1)
                _, classes = torch.unique(ways, dim=0, return_inverse=True)
                use.tell_apart(classes, use.outs)


def _placed(uses: Iterable[Use], count: int) -> list[Use] | None:
    """Uses that share no entry: the larger first, then what others add to them."""
    ordered = sorted(uses, key=lambda u: (-u.matrix.size, int(u.matrix.rows[0])))
    if ordered[0].matrix.size == count:
        return ordered[:1]
    taken = torch.zeros(count, dtype=torch.bool)
    placed = []
    for use in ordered:
        entries = use.matrix.entries()
        free = ~taken[entries]
        if not bool(free.any()):
            continue
        kept = use if bool(free.all()) else _restricted(use, free)
        if kept is None:
            return None
        taken[entries] = True
        placed.append(kept)
    return placed


def _restricted(use: Use, free: Tensor) -> Use | None:
    """The rows and columns that are free, if those are all that is free."""
    chosen = [free.any(2).any(1), free.any(2).any(0), free.any(1).any(0)]
    corner = free[chosen[0]][:, chosen[1]][:, :, chosen[2]]
    if not bool(corner.all()):
        return None
    matrix = use.matrix
    kept = Matrix(
        matrix.rows[chosen[0]], matrix.columns[chosen[1]], matrix.positions[chosen[2]]
    )
    classes = {axis: _ranked(c[chosen[axis]]) for axis, c in use.classes.items()}
    return Use(kept, use.outs, use.table, classes)


def _split(use: Use) -> list[Matrix]:
    parts = [use.matrix]
    for axis, classes in use.classes.items():
        parts = [piece for part in parts for piece in part.split(classes, axis)]
    return parts


def _complement(parts: list[Matrix], count: int) -> Tensor:
    if sum(part.size for part in parts) == count:
        return torch.zeros(0, dtype=torch.int64)
    left = torch.ones(count, dtype=torch.bool)
    for part in parts:
        left[part.entries()] = False
    return left.nonzero().squeeze(1)


def _ranked(classes: Tensor) -> Tensor:
    """Classes numbered in the order of their first members."""
    inverse = torch.unique(classes, return_inverse=True)[1]
    return first_members(inverse).argsort().argsort()[inverse]
