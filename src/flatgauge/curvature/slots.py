"""Backward passes that pull at most one row of each sample, alone or several at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from flatgauge.losses.loss import Rows
from flatgauge.shapes import Float


@dataclass(frozen=True)
class Pass:
    """One backward pass: a vector for each row, and a sign; at most one row a sample."""

    columns: Float[Tensor, "M K"]
    signs: Float[Tensor, " M"]


Passes = Callable[[Rows], Iterator[Pass]]


def by_slot(
    rows: Rows, columns: Float[Tensor, "M K C"], signs: Float[Tensor, "M C"]
) -> Iterator[Pass]:
    """Passes with at most one row a sample: for each position, for each column."""
    order = torch.arange(rows.samples.numel(), device=rows.samples.device)
    first = torch.searchsorted(rows.samples, rows.samples)
    slots = order - first
    for slot in range(int(slots.max()) + 1 if slots.numel() else 0):
        here = (slots == slot).to(columns.dtype)
        for index in range(columns.shape[2]):
            yield Pass(columns[:, :, index] * here[:, None], signs[:, index] * here)


@dataclass(frozen=True)
class Group:
    """Several passes, which lead: one backward serves them all."""

    columns: Float[Tensor, "G M K"]
    signs: Float[Tensor, "G M"]

    @classmethod
    def of(cls, passes: list[Pass]) -> Group:
        """The same passes, stacked."""
        return cls(
            torch.stack([one.columns for one in passes]),
            torch.stack([one.signs for one in passes]),
        )

    def pull(self, outputs: Tensor, edges: list) -> list[Tensor | None]:
        """The slopes ∂⟨outputs, columns⟩/∂edge of all passes, stacked like them."""
        alone = len(self.columns) == 1
        slopes = torch.autograd.grad(
            outputs,
            edges,
            self.columns[0] if alone else self.columns,
            retain_graph=True,
            allow_unused=True,
            is_grads_batched=not alone,
        )
        if alone:
            return [None if slope is None else slope[None] for slope in slopes]
        return list(slopes)


def grouped(passes: Iterator[Pass], count: int) -> Iterator[Group]:
    """The passes in groups of `count`, the last of which may be smaller."""
    while group := list(islice(passes, count)):
        yield Group.of(group)
