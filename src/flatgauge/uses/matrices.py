"""The description of parameters as the matrices that they are used as."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from flatgauge.shapes import Int


@dataclass(frozen=True, eq=False)
class Matrix:
    """Row i and column j hold the entries rows[i] + columns[j] + positions[p], all p.

    Entries are numbered as in the flattened parameter. A convolution has one position
    for each place of its kernel, everything else just one.
    """

    rows: Int[Tensor, " rows"]
    columns: Int[Tensor, " columns"]
    positions: Int[Tensor, " positions"]

    @property
    def size(self) -> int:
        """The number of its entries."""
        return self.rows.numel() * self.columns.numel() * self.positions.numel()

    @property
    def key(self) -> Hashable:
        """What tells it from other matrices of the same parameter."""
        first = int(self.rows[0] + self.columns[0] + self.positions[0])
        sizes = tuple(
            axis.numel() for axis in (self.rows, self.columns, self.positions)
        )
        if self._steps is not None:
            return first, sizes, tuple(self._steps)
        axes = (self.rows, self.columns, self.positions)
        return first, sizes, tuple(axis.numpy().tobytes() for axis in axes)

    def entries(self) -> Int[Tensor, "rows columns positions"]:
        """The numbers of its entries."""
        return self.rows[:, None, None] + self.columns[:, None] + self.positions

    def of(self, tensor: Tensor) -> Tensor:
        """The entries of a tensor like the parameter, as [rows, columns, positions]."""
        flat = tensor.contiguous().view(-1)
        if self._steps is None:
            return flat[self.entries().to(flat.device)]
        first = int(self.rows[0] + self.columns[0] + self.positions[0])
        sizes = [axis.numel() for axis in (self.rows, self.columns, self.positions)]
        return flat.as_strided(sizes, self._steps, flat.storage_offset() + first)

    def split(self, classes: Tensor, axis: int) -> Iterator[Matrix]:
        """One matrix for each class of rows (axis 0) or of columns (axis 1)."""
        for number in range(int(classes.max()) + 1):
            chosen = classes == number
            if axis == 0:
                yield Matrix(self.rows[chosen], self.columns, self.positions)
            else:
                yield Matrix(self.rows, self.columns[chosen], self.positions)

    @cached_property
    def _steps(self) -> list[int] | None:
        """The strides of its three axes, if they are even and run upwards."""
        steps = []
        for axis in (self.rows, self.columns, self.positions):
            gaps = axis.diff()
            if gaps.numel() and (int(gaps[0]) < 0 or bool((gaps != gaps[0]).any())):
                return None
            steps.append(int(gaps[0]) if gaps.numel() else 1)
        return steps


@dataclass(frozen=True, eq=False)
class Matrices:
    """How a parameter is used: as these matrices, which share no entry.

    Attributes:
        parts: the matrices.
        rest: the entries that were seen in none of them.
        table: whether all that happens to it is that rows are looked up.
        alone: whether it is used as these matrices and as nothing else.
    """

    parts: tuple[Matrix, ...]
    rest: Int[Tensor, " rest"]
    table: bool = False
    alone: bool = True

    def matrices(self, tensor: Tensor) -> list[Tensor]:
        """The separate matrices of a tensor like it, with kernel positions summed."""
        found = [part.of(tensor) for part in self.parts]
        return [m.squeeze(2) if m.shape[2] == 1 else m.sum(2) for m in found]

    def others(self, tensor: Tensor) -> Tensor:
        """The entries that are in no matrix."""
        return tensor.reshape(-1)[self.rest.to(tensor.device)]

    def laid_out(self, values: Sequence[Tensor], like: Tensor) -> Tensor:
        """Values of the matrices at the places of their entries in a tensor.

        Args:
            values: one tensor [rows, columns] for each matrix, whose positions share it;
                then one for the entries that are in none, which are 0 without it.
            like: a tensor like the parameter, for shape, dtype and device.
        """
        flat = torch.zeros_like(like, memory_format=torch.contiguous_format).view(-1)
        for rest in values[len(self.parts) :]:
            flat[self.rest.to(flat.device)] = rest.to(like)
        for part, value in zip(self.parts, values, strict=False):
            given = value.to(like)[:, :, None].expand(-1, -1, part.positions.numel())
            if part._steps is not None:
                part.of(flat).copy_(given)
            else:
                flat[part.entries().to(flat.device)] = given
        return flat.view(like.shape)


@dataclass(frozen=True)
class Uses:
    """What the parameters of an objective are used as.

    Attributes:
        matrices: those that are used as matrices, and as nothing else.
        mixed: those that are contracted, but not as matrices of rows and columns.
    """

    matrices: dict[str, Matrices]
    mixed: list[str]

    @property
    def note(self) -> str:
        """One clause on what is contracted and yet no matrix, or nothing."""
        if not self.mixed:
            return ""
        names = ", ".join(f"'{name}'" for name in self.mixed)
        return (
            f"Left out, since no matrix of rows and columns expresses its use: {names}."
        )


def regular(rows: int, columns: int, positions: int = 1, groups: int = 1) -> Matrices:
    """A tensor that is [rows, columns, ...positions], in groups of rows.

    >>> [part.shape for part in regular(4, 3, groups=2).matrices(torch.zeros(4, 3))]
    [torch.Size([2, 3]), torch.Size([2, 3])]
    """
    width = columns * positions
    parts = [
        Matrix(
            width * chosen, positions * torch.arange(columns), torch.arange(positions)
        )
        for chosen in torch.arange(rows).chunk(groups)
    ]
    return Matrices(tuple(parts), torch.zeros(0, dtype=torch.int64))
