"""Products with many vectors at once, where calls cost more than what they compute."""

from __future__ import annotations

import itertools
import math
import statistics
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.curvature.agreement import is_same_product
from flatgauge.curvature.operator import Product
from flatgauge.data import Batch
from flatgauge.kernels.composed import Composed
from flatgauge.objective import Objective
from flatgauge.own_precision import coarsest
from flatgauge.vectors import (
    Params,
    add,
    even_share,
    gaussian,
    generator,
    gradient_of,
    graph_nodes,
    ravel,
    size,
    unit_columns,
    unravel,
)

# Entries that one backward may write, for all vectors together: with more, what is written
# takes longer than calls save; and the fewest and most vectors.
AT_ONCE, LEAST, MOST = 2**24, 16, 256
# Entries that a node of a graph writes in the time that it takes to be called, and how
# much longer it takes to be called for several vectors.
A_CALL, BATCHED = 10_000.0, 3.0
# What is added of a second vector to a first one, so that swapped images show.
MIXED = 0.7
# Passes of which three are made to see what they take.
AGAIN = 16
# The share of a graph that the upper triangle of a matrix goes through, on average.
TRIANGLE = 0.6


@dataclass(frozen=True, eq=False)
class ManyAtOnce(ABC):
    """v ↦ A_b v, for many vectors at once where that can be done.

    Args:
        point: θ, as leaves.
        make: makes what does so, given what is true of one vector.
    """

    point: Params
    make: Callable[[Product], ManyProducts | None] | None

    @abstractmethod
    def __call__(self, vector: Params) -> Params:
        """A_b v for one vector."""

    @cached_property
    def at_once(self) -> ManyProducts | None:
        """Made, and compared with this, when it is first asked for."""
        return None if self.make is None else self.make(self)

    def many(self, vectors: list[Params]) -> list[Params]:
        """A_b v for vectors v of the same tensors."""
        if self.at_once is None:
            return [self(vector) for vector in vectors]
        return unstacked(self.at_once(stacked(vectors), vectors[0]))

    def matrix(self) -> Tensor:
        """A_b itself."""
        if self.at_once is not None:
            return self.at_once.matrix()
        columns = unit_columns(self.point, 0, size(self.point)).unbind(1)
        images = [self(unravel(column, self.point)) for column in columns]
        return torch.stack([ravel(image) for image in images], dim=1)


@dataclass(frozen=True)
class ManyProducts:
    """v ↦ ∂⟨∇L, v⟩/∂θ for several vectors in one backward through a graph of its own.

    Args:
        point: θ, as leaves.
        curved: the parts of ∇L that depend on θ, by operations that can be batched.
    """

    point: Params
    curved: Params

    def __call__(self, vectors: Params, onto: Collection[str]) -> Params:
        """Images of vectors of some tensors, stacked, in the tensors that are wanted."""
        leaves = {name: self.point[name] for name in onto}
        pulled = [name for name in self.curved if name in vectors]
        if not pulled:
            count = len(next(iter(vectors.values())))
            return {n: t.new_zeros(count, *t.shape) for n, t in leaves.items()}

        def images(slopes: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            return torch.autograd.grad(
                [self.curved[name] for name in pulled],
                list(leaves.values()),
                slopes,
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )

        with warnings.catch_warnings():
            # Of operations that are done one by one.
            warnings.simplefilter("ignore")
            slopes = tuple(vectors[name] for name in pulled)
            count = len(slopes[0])
            some = even_share(count, self.together) if count > self.together else None
            found = torch.func.vmap(images, chunk_size=some)(slopes)
        return dict(zip(leaves, (one.detach() for one in found), strict=True))

    def matrix(self) -> Tensor:
        """All of it, by its upper triangle."""
        count = size(self.point)
        found = next(iter(self.point.values())).new_zeros(count, count)
        for start in range(0, count, self.together):
            deadline.check()
            rows = self._timed.pop(start, None)
            rows = self._rows(start) if rows is None else rows
            stop, offset = start + len(rows), count - rows.shape[1]
            found[start:stop, offset:] = rows
            found[offset:, start:stop] = rows.mT
        return found

    def _rows(self, start: int) -> Tensor:
        """As many rows as are done at once, in columns of their tensors and later ones."""
        count, tensors = size(self.point), self.point.items()
        stop = min(start + self.together, count)
        ends = itertools.accumulate(tensor.numel() for tensor in self.point.values())
        places = dict(zip(self.point, ends, strict=True))
        later = {name: t for name, t in tensors if places[name] > start}
        offset = count - size(later)
        met = {name: t for name, t in later.items() if places[name] - t.numel() < stop}
        units = unit_columns(met, start - offset, stop - offset).mT
        parts = units.split([tensor.numel() for tensor in met.values()], dim=1)
        vectors = {
            name: part.reshape(stop - start, *tensor.shape)
            for (name, tensor), part in zip(met.items(), parts, strict=True)
        }
        images = self(vectors, later)
        parts = [
            one.reshape(stop - start, later[n].numel()) for n, one in images.items()
        ]
        return torch.cat(parts, dim=1)

    @cached_property
    def _timed(self) -> dict[int, Tensor]:
        """Rows that were made to see what they take, by the first: the matrix has them."""
        return {}

    @cached_property
    def seconds(self) -> float:
        """Of the matrix, by those of some of its rows."""
        count = size(self.point)
        passes = math.ceil(count / self.together)
        taken = []
        # The first time takes memory from the system, too.
        for place in (0.5, 0.25, 0.75)[: 3 if passes >= AGAIN else 1]:
            started = deadline.clock()
            start = int(place * passes) * self.together
            self._timed[start] = self._rows(start)
            taken.append(deadline.clock() - started)
        return passes * statistics.mean(taken[1:] or taken)

    @cached_property
    def together(self) -> int:
        """The vectors of one backward."""
        return min(max(AT_ONCE // max(self._work[1], 1), LEAST), MOST)

    def price(self) -> float:
        """The matrix in single products: nodes are called, and entries written."""
        calls, entries = self._work
        count = size(self.point)
        one, passes = A_CALL * calls + entries, math.ceil(count / self.together)
        return TRIANGLE * (passes * BATCHED * A_CALL * calls + count * entries) / one

    def reads(self) -> bool:
        """Whether a product with the matrix takes less than one through the graph."""
        calls, entries = self._work
        return size(self.point) ** 2 <= A_CALL * calls + entries

    @cached_property
    def _work(self) -> tuple[int, int]:
        """The nodes of the graph, and the entries that one vector makes them write."""
        made = [node._input_metadata for node in graph_nodes(self.curved.values())]
        entries = sum(math.prod(one.shape) for each in made for one in each)
        return len(made), entries


def many_products(
    objective: Objective, batch: Batch, truth: Product
) -> ManyProducts | None:
    """Those of a batch; None where torch cannot make them, or they are not the true ones.

    Not every operation can be done for several vectors by torch, and not every rule for
    that need be right.
    """
    random = generator(0)
    tried = [gaussian(objective.parameters, random) for _ in range(2)]
    try:
        point = objective.leaves()
        with Composed():
            total = objective.batch_total(point, batch)
        slopes = gradient_of(total, point, create_graph=True)
        made = ManyProducts(
            point, {n: slope for n, slope in slopes.items() if slope.requires_grad}
        )
        found = unstacked(made(stacked(tried), point))
    except Exception:  # whatever torch has against it, single products go on
        return None
    # Both at once, since products are linear: one would have to make up for the other.
    image, vector = (add(one, two, MIXED) for one, two in (found, tried))
    precision = coarsest(slopes.values(), objective.dtype)
    return made if is_same_product(image, truth(vector), precision) else None


def stacked(vectors: list[Params]) -> Params:
    """Vectors of the same tensors, along a leading dimension."""
    return {name: torch.stack([one[name] for one in vectors]) for name in vectors[0]}


def unstacked(vectors: Params) -> list[Params]:
    """The inverse."""
    parts = [tensor.unbind() for tensor in vectors.values()]
    return [dict(zip(vectors, each, strict=True)) for each in zip(*parts, strict=True)]
