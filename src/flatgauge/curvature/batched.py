"""Operators that are sums over batches: batches outside, vectors inside.

One pass over the data serves all vectors. What a batch prepares (a graph that was
differentiated once, say) is kept for the next call while all batches together fit in
the memory budget.
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.data import Batch
from flatgauge.objective import Objective
from flatgauge.vectors import (
    Params,
    add,
    check_finite,
    derivative_errors,
    scale,
    zeros_like,
)

BatchProduct = Callable[[list[Params]], list[Params]]


class BatchedOperator(SymmetricOperator):
    """A = (1/N) Σ_batches A_b, for N rows in all.

    A subclass prepares each batch once, and the prepared products are kept and used
    again where `keeps` is true and the memory allows.

    Args:
        objective: model, data, loss and the point.
        memory_budget: bytes that kept graphs may take; half of what is free if None,
            and 0 keeps nothing.
    """

    name: str
    keeps: bool = True

    def __init__(self, objective: Objective, *, memory_budget: int | None = None):
        self.objective = objective
        self.space = objective.parameters
        self.memory_budget = memory_budget
        self._kept: list[BatchProduct] | None = None

    @abstractmethod
    def _prepare(self, batch: Batch) -> BatchProduct:
        """The product A_b v for the sum over one batch, ready for many vectors."""

    def _apply(self, vectors: list[Params]) -> list[Params]:
        totals = [zeros_like(self.space) for _ in vectors]
        with self.objective.isolated():
            for product in self._products():
                images = product(vectors)
                totals = [
                    add(t, image) for t, image in zip(totals, images, strict=True)
                ]
        means = [scale(total, 1 / self.objective.sample_count) for total in totals]
        for mean in means:
            check_finite(mean, f"{self.name} product")
        return means

    def _products(self) -> Iterator[BatchProduct]:
        if self._kept is not None:
            yield from self._kept
            return
        kept: list[BatchProduct] | None = [] if self.keeps else None
        for batch in self.objective.batches():
            with SavedBytes() as saved:
                product = self._guarded(batch)
            if kept is not None and batch.index == 0:
                wanted = saved.total * self.objective.batch_count
                if wanted > self._budget():
                    kept = None
            if kept is not None:
                kept.append(product)
            yield product
        self._kept = kept

    def _guarded(self, batch: Batch) -> BatchProduct:
        with derivative_errors(self.name):
            inner = self._prepare(batch)

        def product(vectors: list[Params]) -> list[Params]:
            with derivative_errors(self.name):
                return inner(vectors)

        return product

    def _budget(self) -> int:
        if self.memory_budget is not None:
            return self.memory_budget
        return free_memory(self.objective.device) // 2


class SavedBytes:
    """Counts the bytes that autograd saves for later while the context is open."""

    def __init__(self) -> None:
        self._storages: dict[int, int] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    @property
    def total(self) -> int:
        """Bytes over all distinct storages."""
        return sum(self._storages.values())

    def _pack(self, tensor: Tensor) -> tuple[Tensor, int]:
        storage = tensor.untyped_storage()
        self._storages[storage.data_ptr()] = storage.nbytes()
        # Detached: a hook that keeps an output itself would make a reference cycle.
        return tensor.detach(), tensor._version

    def _unpack(self, saved: tuple[Tensor, int]) -> Tensor:
        tensor, version = saved
        # torch makes this check itself only where there are no hooks.
        if tensor._version != version:
            raise RuntimeError(
                "a saved tensor has been modified by an inplace operation"
            )
        return tensor

    def __enter__(self) -> SavedBytes:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)


def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
