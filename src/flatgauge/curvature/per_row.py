"""Gradients row by row, of batches that do not split into samples, as graphs do not."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.data import Batch
from flatgauge.losses.loss import ValueLoss
from flatgauge.objective import Objective
from flatgauge.vectors import Params, check_finite, derivative_errors, scale


def squared_row_gradients(objective: Objective, loss: ValueLoss) -> Params:
    """(1/N) Σ_rows (∂ℓ_row/∂θ)², entry by entry: one backward for each row.

    What the rows are is said by the loss; all of a batch is run at once.
    """

    def term(batch: Batch) -> Params:
        point = objective.leaves()
        total = {name: torch.zeros_like(leaf) for name, leaf in point.items()}
        values = loss.values(loss.rows(*objective.evaluate(point, batch)))
        for value in values:
            for name, slope in zip(point, _slopes(value, point), strict=True):
                if slope is not None:
                    total[name] += slope.square()
        return total

    found = scale(objective.sum(term), 1 / objective.sample_count)
    check_finite(found, "diagonal")
    return found


def _slopes(value: Tensor, point: Params) -> tuple[Tensor | None, ...]:
    with derivative_errors("gradient"):
        return torch.autograd.grad(
            value, list(point.values()), retain_graph=True, allow_unused=True
        )
