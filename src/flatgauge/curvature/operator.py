"""Symmetric linear maps on named vectors: the one interface between curvature and solvers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import overload

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.errors import NonFiniteError, OptionError, VectorError
from flatgauge.memory import memory_budget
from flatgauge.ranks import ALONE, Ranks
from flatgauge.shapes import Float
from flatgauge.shards import is_sharded
from flatgauge.vectors import (
    Params,
    check_finite,
    check_like,
    dealt_like,
    even_share,
    is_finite,
    map_tensors,
    multiply,
    norm,
    own_bytes,
    ravel,
    size,
    together,
    unravel,
)

# Units in the last place, relative to the spectral radius, that count as zero in a product:
# it is a sum of many terms that were rounded on their own.
PRODUCT_UNITS = 16.0
# Vectors of memory for each that is multiplied at a time: its image and what both are made
# of, and as much again for what batches keep.
HELD = 8
# Bytes that are taken without a look at what is free, which takes longer than a product.
LITTLE = 2**25

# v ↦ A_b v, for one batch b.
Product = Callable[[Params], Params]


def rounding_of(dtype: torch.dtype) -> float:
    """The rounding error of products with all the bits of a dtype."""
    return PRODUCT_UNITS * torch.finfo(dtype).eps


class SymmetricOperator(ABC):
    """A symmetric linear map A on the vectors of one space.

    A subclass sets `space` (a `Params` whose names, shapes, dtype and device every
    vector must have) and implements `_apply`; `name` is for errors. `products` counts
    the vectors that A was applied to since it was built. `memory` holds the bytes of the
    device that products and solvers may use; None leaves half of what is free to them.
    `ranks` are the processes that make its products together.
    """

    space: Params
    name: str = ""
    memory: int | None = None
    ranks: Ranks = ALONE
    products: int = 0

    @property
    def takes_parts(self) -> bool:
        """Whether vectors of some tensors only are multiplied by the block of these."""
        return False

    @abstractmethod
    def _apply(self, vectors: list[Params]) -> list[Params]:
        """A v for each vector v (names, shapes and dtype already checked)."""

    @overload
    def __matmul__(self, vectors: Params) -> Params: ...
    @overload
    def __matmul__(self, vectors: Sequence[Params]) -> list[Params]: ...
    def __matmul__(self, vectors: Params | Sequence[Params]) -> Params | list[Params]:
        """A v for one named vector, or the list of A v for several at a time."""
        if isinstance(vectors, Mapping | Tensor):
            return (self @ [vectors])[0]
        # Without their history: what it would cost depends on the way to the product.
        checked = [
            map_tensors(torch.detach, check_like(vector, self.space))
            for vector in vectors
        ]
        if not checked:
            return []
        if self.ranks.count > 1:
            sizes = sum(float(norm(vector)) for vector in checked)
            self.ranks.check_same(sizes, "a vector to be multiplied")
        checked = [dealt_like(vector, self.space) for vector in checked]
        images = self.unchecked(checked)
        self.check(images)
        return images

    def unchecked(self, vectors: list[Params]) -> list[Params]:
        """A v for vectors that are known to be of the space; A v may not be finite.

        Unlike a check, it waits for the device only while batches are prepared.
        """
        return deadline.in_groups(self._counted, vectors)

    def at_a_time(self, most: int) -> int:
        """How many of so many vectors to multiply in one pass, as far as memory goes."""
        wanted = max(1, min(together(self.space), most))
        needed = HELD * own_bytes(self.space) * wanted
        if self.memory is None and self.ranks.count == 1 and needed <= LITTLE:
            return even_share(most, wanted)
        device = next(iter(self.space.values())).device
        room = memory_budget(device, self.memory) // (HELD * own_bytes(self.space))
        return even_share(most, max(1, min(wanted, self.ranks.least(room))))

    def _counted(self, vectors: list[Params]) -> list[Params]:
        self.products += len(vectors)
        return self._apply(vectors)

    def check(self, images: list[Params]) -> None:
        """Raise a NonFiniteError that names the part of a product that is not finite."""
        for image in images:
            check_finite(image, f"{self.name} product".strip())

    @property
    def rounding(self) -> float:
        """The rounding error of a product, as a share of the spectral radius."""
        return rounding_of(next(iter(self.space.values())).dtype)

    @property
    def dimension(self) -> int:
        """The number n of rows and columns."""
        return size(self.space)

    def multiply_flat(
        self, columns: Float[Tensor, "n k"], *, check: bool = True
    ) -> Float[Tensor, "n k"]:
        """A times the columns of a matrix whose rows follow the order of `ravel`.

        With check=False it is left to the caller to see that the result is finite.
        """
        first = next(iter(self.space.values()))
        if (columns.dtype, columns.device) != (first.dtype, first.device):
            raise VectorError(
                f"the columns are {columns.dtype} on {columns.device}, but the operator is "
                f"{first.dtype} on {first.device}: convert them first."
            )
        vectors = [unravel(column, self.space) for column in columns.detach().unbind(1)]
        images = self.unchecked(vectors)
        if check:
            self.check(images)
        flat = [ravel(image) for image in images]
        return torch.stack(flat, dim=1) if len(flat) > 1 else flat[0][:, None]

    def to_dense(self, limit: int = 20_000) -> Float[Tensor, "n n"]:
        """The matrix itself, column by column; refused above `limit` rows."""
        if self.dimension > limit:
            raise OptionError(
                f"a dense matrix of {self.dimension} rows was asked for, above the limit "
                f"of {limit}: choose fewer parameters, or raise limit=."
            )
        first = next(iter(self.space.values()))
        if is_sharded(first):
            raise OptionError(
                "a dense matrix of sharded parameters was asked for: build the operator "
                "from objective.whole()."
            )
        identity = torch.eye(self.dimension, dtype=first.dtype, device=first.device)
        blocks = identity.split(64, dim=1)
        return torch.cat([self.multiply_flat(block) for block in blocks], dim=1)


class DenseOperator(SymmetricOperator):
    """A given symmetric matrix, as an operator on one vector named `"x"`.

    `rounding` is that of its entries, if they are coarser than their dtype.

    >>> import torch
    >>> A = DenseOperator(torch.tensor([[2.0, 1.0], [1.0, 3.0]]))
    >>> (A @ {"x": torch.tensor([1.0, 0.0])})["x"]
    tensor([2., 1.])
    """

    def __init__(self, matrix: Float[Tensor, "n n"], rounding: float = 0.0):
        self.matrix = matrix
        self._rounding = rounding
        self.space = {"x": matrix.new_zeros(matrix.shape[0])}

    @property
    def rounding(self) -> float:
        """That of the dtype, or of the entries."""
        return max(super().rounding, self._rounding)

    def _apply(self, vectors: list[Params]) -> list[Params]:
        return [{"x": self.matrix @ vector["x"]} for vector in vectors]


class Composed(SymmetricOperator):
    """An operator whose products are made of those of another one."""

    def __init__(self, operator: SymmetricOperator):
        self.operator = operator
        self.space = operator.space
        self.memory, self.ranks = operator.memory, operator.ranks

    @property
    def rounding(self) -> float:
        """That of the other operator."""
        return self.operator.rounding

    def check(self, images: list[Params]) -> None:
        """As the other operator does: its parts are still apart."""
        self.operator.check(images)


class Scaled(Composed):
    """S A S for a diagonal S, given as a named vector (or anything that broadcasts)."""

    def __init__(self, operator: SymmetricOperator, scales: Params):
        super().__init__(operator)
        self.scales = scales

    def _apply(self, vectors: list[Params]) -> list[Params]:
        images = self.operator.unchecked(
            [multiply(vector, self.scales) for vector in vectors]
        )
        return [multiply(image, self.scales) for image in images]


class Compressed(Composed):
    """P A P for an orthogonal projection P."""

    def __init__(
        self, operator: SymmetricOperator, projection: Callable[[Params], Params]
    ):
        super().__init__(operator)
        self.projection = projection

    def _apply(self, vectors: list[Params]) -> list[Params]:
        images = self.operator.unchecked(
            [self.projection(vector) for vector in vectors]
        )
        return [self.projection(image) for image in images]

    def check(self, images: list[Params]) -> None:
        """A projection spreads what is not finite, so that no part is to blame."""
        if not all(is_finite(image) for image in images):
            raise NonFiniteError(
                "a projected product is not finite: look for square roots or logarithms "
                "at 0, or measure in dtype=torch.float64."
            )


class Block(Composed):
    """The rows and columns of A that belong to some tensors of its space."""

    def __init__(self, operator: SymmetricOperator, names: Collection[str]):
        super().__init__(operator)
        self.space = {n: t for n, t in operator.space.items() if n in names}

    def _apply(self, vectors: list[Params]) -> list[Params]:
        if self.operator.takes_parts:
            return self.operator.unchecked(vectors)
        images = self.operator.unchecked([self._filled(vector) for vector in vectors])
        return [{name: image[name] for name in self.space} for image in images]

    def _filled(self, vector: Params) -> Params:
        """The vector of the whole space that is zero elsewhere."""
        return {
            name: vector[name] if name in vector else torch.zeros_like(tensor)
            for name, tensor in self.operator.space.items()
        }
