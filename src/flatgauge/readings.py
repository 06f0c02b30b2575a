"""What is made of all batches, by one process or by several.

These are the only loops over the data: each process reads its own batches inside
`Ranks.together`, and what comes of them is put together here.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeVar

import torch
from torch import Tensor

from flatgauge.data import Batch, few_samples, map_batch
from flatgauge.nested import map_leaves
from flatgauge.ranks import Ranks
from flatgauge.shards import is_sharded
from flatgauge.sums import in_time, summed

T = TypeVar("T")


class Readings(ABC):
    """Whatever has batches, in processes that each have some of them.

    Attributes:
        ranks: the processes.
        shares: how many batches each of them has.
        in_step: whether all run as many, since each needs the others': see
            `data.Batch.stand_in`.
    """

    ranks: Ranks
    shares: tuple[int, ...]
    in_step: bool = False

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Where the batches go."""

    @abstractmethod
    def isolated(self, seed: int = 0) -> AbstractContextManager[None]:
        """The context that batches are read and evaluated in."""

    @abstractmethod
    def batches(self) -> Iterator[Batch]:
        """The batches of this process, on the device; to be read inside `isolated()`."""

    def sum(self, term: Callable[[Batch], T]) -> T:
        """Σ term(batch) over the data: see `sums.summed` for what can be added up."""

        def counted(batch: Batch) -> T:
            found = term(batch)
            return map_leaves(_sharded_part, found) if batch.stand_in else found

        def own() -> T:
            with self.isolated():
                return summed(map(counted, in_time(self.batches())))

        return self.total(own)

    def holds(self, claim: Callable[[Batch], bool]) -> bool:
        """Whether a claim holds for every batch; after one that fails no other is read."""

        def own() -> int:
            with self.isolated():
                return int(not all(map(claim, in_time(self.batches()))))

        return self.total(own) == 0

    def total(self, own: Callable[[], T]) -> T:
        """The sum over processes of what each makes of its own batches.

        It is not asked for on a process that has none.
        """
        busy = self.in_step or bool(self.shares[self.ranks.rank])
        found: Any = self.ranks.together(lambda: own() if busy else None, idle=not busy)
        if 0 in self.shares and not self.in_step:
            rank = next(r for r, batches in enumerate(self.shares) if batches)
            like = self.ranks.given_by(rank, _layout(found) if busy else None)
            found = found if busy else map_leaves(self._nothing, like)
        return self.ranks.added(found)

    def first_batch(self, suits: Callable[[Batch], bool] | None = None) -> Batch:
        """The first one that suits, or else the first of all, on the device.

        Inside `Ranks.together` it is the first of this process.
        """

        def own() -> tuple[bool, Batch] | None:
            with self.isolated():
                first: Batch | None = None
                for batch in self.batches():
                    if batch.stand_in:
                        break
                    if suits is None or suits(batch):
                        return True, batch
                    first = first or batch
                return None if first is None else (False, first)

        found = self.ranks.together(own)
        if self.ranks.apart or self.ranks.count == 1:
            assert found is not None
            return found[1]
        kinds = self.ranks.gathered(None if found is None else found[0])
        rank = kinds.index(True) if True in kinds else kinds.index(False)
        if rank == self.ranks.rank:
            assert found is not None
            self.ranks.given_by(rank, map_batch(Tensor.cpu, found[1]))
            return found[1]
        return self._placed(self.ranks.given_by(rank, Batch(0, None, None, None)))

    def examples(self, batches: int, samples: int) -> list[Batch]:
        """A few samples of each of the first batches."""
        few = self.each(
            lambda batch: map_batch(Tensor.cpu, few_samples(batch, samples)), batches
        )
        return [self._placed(batch) for batch in few]

    def each(self, look: Callable[[Batch], T], most: int | None = None) -> list[T]:
        """What a look at each batch gives, in order; of the first ones, if `most`."""
        end = math.inf if most is None else most

        def own() -> list[T]:
            with self.isolated():
                some = takewhile(
                    lambda batch: batch.index < end and not batch.stand_in,
                    self.batches(),
                )
                return [look(batch) for batch in in_time(some)]

        parts = self.ranks.gathered(self.ranks.together(own))
        return [one for part in parts for one in part]

    def _placed(self, batch: Batch) -> Batch:
        return map_batch(lambda tensor: tensor.to(self.device), batch)

    def _nothing(self, like: Any) -> Any:
        """A 0 of the same kind."""
        if not isinstance(like, _Shape):
            return like
        return torch.zeros(like.sizes, dtype=like.dtype, device=self.device)


@dataclass(frozen=True)
class _Shape:
    """What a tensor is like."""

    sizes: tuple[int, ...]
    dtype: torch.dtype


def _sharded_part(leaf: Any) -> Any:
    """What a stand-in adds: of sums over processes its rows, of its own nothing."""
    if leaf is None or is_sharded(leaf):
        return leaf
    return torch.zeros_like(leaf) if isinstance(leaf, Tensor) else type(leaf)()


def _layout(value: Any) -> Any:
    """A sum without its numbers."""
    return map_leaves(
        lambda leaf: (
            _Shape(tuple(leaf.shape), leaf.dtype)
            if isinstance(leaf, Tensor)
            else None
            if leaf is None
            else type(leaf)()
        ),
        value,
    )
