"""Dense references that only tests need: obviously right, and slow."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flatgauge.curvature.dense import dense_hessian
from flatgauge.data import Batch
from flatgauge.errors import LossError, OptionError
from flatgauge.losses import RowLoss
from flatgauge.losses.loss import Rows
from flatgauge.objective import Objective
from flatgauge.vectors import Params, ravel, unravel


def dense_gauss_newton(objective: Objective) -> Tensor:
    """(1/N) Σ_rows Jᵀ (∇²_f ℓ) J, with ∇²_f ℓ by differentiating the loss twice."""
    loss = _row_loss(objective)

    def middle(rows: Rows, index: int) -> Tensor:
        def value(f: Tensor) -> Tensor:
            return loss.values(_one_row(rows, index, f[None]))[0]

        f = rows.outputs[index].detach()
        return torch.stack([*torch.autograd.functional.hessian(value, f)])

    return _sum_over_rows(objective, middle)


def dense_fisher(objective: Objective, kind: str = "empirical") -> Tensor:
    """(1/N) Σ_rows E_y[∇ℓ ∇ℓᵀ], for "true" by enumerating all classes y."""
    loss = _row_loss(objective)
    if kind == "true" and not loss.classification:
        raise OptionError(
            "the dense true Fisher matrix enumerates classes: use a "
            "classification loss."
        )

    def middle(rows: Rows, index: int) -> Tensor:
        f = rows.outputs[index].detach()
        if kind == "empirical":
            slope = _slope(loss, rows, index, rows.targets[index : index + 1])
            return torch.outer(slope, slope)
        total = torch.zeros(f.numel(), f.numel(), dtype=f.dtype, device=f.device)
        for label in range(f.numel()):
            target = rows.targets.new_tensor([label])
            single = Rows(f[None], target, rows.samples[:1])
            slope = _slope(loss, rows, index, target)
            total += torch.exp(-loss.values(single)[0]) * torch.outer(slope, slope)
        return total

    return _sum_over_rows(objective, middle)


def dense_diagonal(objective: Objective) -> Params:
    """diag(∇²L), from the dense matrix."""
    return unravel(dense_hessian(objective).diagonal().clone(), objective.parameters)


def _sum_over_rows(
    objective: Objective, middle: Callable[[Rows, int], Tensor]
) -> Tensor:
    space = objective.parameters
    flat = ravel(space)
    loss = _row_loss(objective)

    def term(batch: Batch) -> Tensor:
        def outputs(point: Tensor) -> Tensor:
            return loss.rows(*objective.evaluate(unravel(point, space), batch)).outputs

        jacobian = torch.autograd.functional.jacobian(outputs, flat)
        rows = loss.rows(*objective.evaluate(space, batch))
        total = flat.new_zeros(flat.numel(), flat.numel())
        for index in range(rows.outputs.shape[0]):
            total += jacobian[index].mT @ middle(rows, index) @ jacobian[index]
        return total

    return objective.sum(term) / objective.sample_count


def _slope(loss: RowLoss, rows: Rows, index: int, target: Tensor) -> Tensor:
    f = rows.outputs[index].detach().requires_grad_()
    value = loss.values(Rows(f[None], target, rows.samples[:1])).sum()
    return torch.autograd.grad(value, f)[0]


def _one_row(rows: Rows, index: int, outputs: Tensor) -> Rows:
    return Rows(outputs, rows.targets[index : index + 1], rows.samples[:1])


def _row_loss(objective: Objective) -> RowLoss:
    if not isinstance(objective.loss, RowLoss):
        raise LossError("this dense reference needs a named loss.")
    return objective.loss
