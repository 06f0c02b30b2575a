"""Squared gradients of rows: one by one, or by random signs where there are too many."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.curvature.samples import batch_generator
from flatgauge.data import Batch, cut_length
from flatgauge.losses.loss import ValueLoss, random_signs
from flatgauge.objective import Objective
from flatgauge.shapes import Float
from flatgauge.vectors import Params, check_finite, derivative_errors, scale


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

    Args:
        objective: model, data and loss.
        loss: of the objective, row by row.
        point: θ.
        probes: how many draws.
        seed: of the signs.
    """

    def term(batch: Batch) -> Tensor:
        leaves = objective.leaves()
        values = loss.values(loss.rows(*objective.evaluate(leaves, batch)))
        random = batch_generator(seed, batch)
        found = values.new_zeros(probes, len(point), dtype=torch.float64)
        for draw in range(probes if values.requires_grad else 0):
            weighted = (values * random_signs(values.detach(), random)).sum()
            for place, (name, slope) in enumerate(
                zip(leaves, _slopes(weighted, leaves), strict=True)
            ):
                if slope is not None:
                    own = point[name] * slope
                    size = torch.linalg.vector_norm(own, dtype=torch.float64)
                    found[draw, place] = size.square()
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
