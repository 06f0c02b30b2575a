"""Squared gradients of rows: one by one, or by random signs where there are too many."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.curvature.samples import batch_generator
from flatgauge.data import Batch, cut_length
from flatgauge.losses.loss import ValueLoss, random_signs
from flatgauge.objective import Objective
from flatgauge.shapes import Float
from flatgauge.vectors import (
    Params,
    check_finite,
    derivative_errors,
    gradient_of,
    scale,
    zeros_like,
)


def rows_apart(objective: Objective) -> float:
    """How many rows a sample has, or a batch that does not split into samples.

    Each of them needs a backward of its own for its own gradient.
    """
    samples = objective.each(cut_length)
    cut = sum(count for count in samples if count is not None)
    return objective.sample_count / (len(samples) if None in samples else max(cut, 1))


def signed_row_sums(
    objective: Objective, loss: ValueLoss, point: Params, probes: int, seed: int
) -> Float[Tensor, "probes tensors"]:
    """(1/N) Σ_batches Σ_i θ_i² (Σ_rows ε_row ∂_i ℓ_row)² for every tensor and draw of ε.

    Over random signs ε its mean is (1/N) Σ_rows Σ_i θ_i² (∂_i ℓ_row)²: what two rows have
    in common is added as often as it is subtracted. One backward for each draw.
    """

    def term(batch: Batch) -> Tensor:
        leaves = objective.leaves()
        values = loss.values(loss.rows(*objective.evaluate(leaves, batch)))
        random = batch_generator(seed, batch)
        found = values.new_zeros(probes, len(point), dtype=torch.float64)
        for draw in found:
            weighted = (values * random_signs(values.detach(), random)).sum()
            norms = [
                torch.linalg.vector_norm(point[name] * slope, dtype=torch.float64)
                for name, slope in _slopes(weighted, leaves).items()
            ]
            draw += torch.stack(norms).square()
        return found

    found = objective.sum(term) / objective.sample_count
    check_finite({"": found}, "diagonal")
    return found


def squared_row_gradients(objective: Objective, loss: ValueLoss) -> Params:
    """(1/N) Σ_rows (∂ℓ_row/∂θ)², entry by entry: one backward for each row.

    What the rows are is said by the loss; all of a batch is run at once.
    """

    def term(batch: Batch) -> Params:
        point = objective.leaves()
        total = zeros_like(objective.parameters)
        values = loss.values(loss.rows(*objective.evaluate(point, batch)))
        for value in values:
            for name, slope in _slopes(value, point).items():
                total[name] += slope.square()
        return total

    found = scale(objective.sum(term), 1 / objective.sample_count)
    check_finite(found, "diagonal")
    return found


def _slopes(value: Tensor, point: Params) -> Params:
    with derivative_errors("gradient"):
        return gradient_of(value, point, keep_graph=True)
