"""Operators that are sums over batches: batches outside, vectors inside.

One pass over the data serves all vectors. What a batch prepares (a graph that was
differentiated once, say) is kept for the next call while all batches together leave
room in the memory budget.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import nullcontext

import torch

from flatgauge.curvature.operator import BatchProduct, SymmetricOperator
from flatgauge.data import Batch
from flatgauge.errors import LossError
from flatgauge.isolation import on_device
from flatgauge.memory import can_be_kept, kept_bytes, memory_budget
from flatgauge.objective import Objective
from flatgauge.vectors import (
    Params,
    add_into,
    derivative_errors,
    scale,
)

# What is lost of a product whose factors have 10 bits, as a share of the largest.
TF32 = 2**-10


class BatchedOperator(SymmetricOperator):
    """A = (1/N) Σ_batches A_b, for N rows in all.

    A subclass prepares each batch once, and the prepared products are kept and used
    again where `keeps` is true and the memory allows.

    Args:
        objective: model, data, loss and the point.
        memory_budget: bytes; graphs are kept while they fill at most 65 % of them. Half
            of what is free if None, and 0 keeps nothing.
    """

    keeps: bool
    # Whether what is kept was saved by autograd, which can be counted; torch.func has
    # no such hooks.
    counts: bool = True
    replays: bool = False

    def __init__(self, objective: Objective, *, memory_budget: int | None = None):
        if objective.loss.rounding >= 1:
            raise LossError(
                f"the loss '{objective.loss.name}' loses all of its second derivatives to "
                f"rounding in {objective.dtype}: use a named loss or dtype=torch.float64."
            )
        self.objective = objective
        # The same objective, in the batches that are read.
        self._read = objective
        self.space = objective.parameters
        self.memory_budget = memory_budget
        self._kept: list[BatchProduct] | None = None

    def _begin(self, batch: Batch, count: int, budget: int) -> None:
        """Look at the first batch, for `count` vectors, before it is prepared."""

    def _refuse_to_keep(self) -> None:
        """Take note that prepared batches will not be kept."""

    @abstractmethod
    def _prepare(self, batch: Batch) -> BatchProduct:
        """The product A_b v for the sum over one batch, ready for many vectors."""

    @property
    def rounding(self) -> float:
        """That of the loss, too; TF32 keeps 10 bits of the factors, whatever v has."""
        objective = self.objective
        finest = max(super().rounding, objective.loss.rounding)
        coarse = objective.precision == "tf32" and objective.device.type == "cuda"
        if coarse and objective.dtype == torch.float32:
            return max(finest, TF32)
        return finest

    @property
    def begins_at_once(self) -> bool:
        """Replays of recordings do."""
        return self.replays and self._kept is not None

    def _apply(self, vectors: list[Params]) -> list[Params]:
        totals: list[Params] = []
        share = 1 / self.objective.sample_count
        # Replays run no code of the model, so there is nothing to be isolated from.
        replayed = self.begins_at_once
        device = self.objective.device
        with on_device(device) if replayed else self.objective.isolated():
            for product in self._products(len(vectors)):
                images = product(vectors)
                if not totals:
                    totals = [scale(image, share) for image in images]
                    continue
                for total, image in zip(totals, images, strict=True):
                    add_into(total, image, share)
        return totals

    def _products(self, count: int) -> Iterator[BatchProduct]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[BatchProduct] | None = []
        budget, device = self._budget(), self.objective.device
        for batch in self._read.batches():
            if batch.index == 0:
                self._begin(batch, count, budget)
            with kept_bytes(device) if self.counts else nullcontext() as saved:
                product = self._guarded(batch)
            if batch.index == 0:
                wanted = saved.total * self._read.batch_count if saved else 0
                if not (self.keeps and can_be_kept(wanted, budget)):
                    kept = None
                    self._refuse_to_keep()
            if kept is not None:
                kept.append(product)
            yield product
        self._kept = kept

    def _guarded(self, batch: Batch) -> BatchProduct:
        # A local name: what is kept must not hold on to its owner.
        name = self.name
        with derivative_errors(name):
            inner = self._prepare(batch)

        def product(vectors: list[Params]) -> list[Params]:
            with derivative_errors(name):
                return inner(vectors)

        return product

    def _budget(self) -> int:
        return memory_budget(self.objective.device, self.memory_budget)
