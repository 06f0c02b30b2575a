"""Which parts of a contraction's output go separate ways into attention.

Query, key and value are often one matrix whose output is cut in three. The rows of such
a matrix are told apart by where their outputs arrive: as which operand of which product
of two activations.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flatgauge.uses.describe import Use
from flatgauge.uses.places import Memory, Places


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
                use.tell_apart(classes)
