"""The generalized Gauss-Newton matrix, and the product with a Jacobian that it needs."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flatgauge.curvature.batched import BatchedOperator, BatchProduct
from flatgauge.data import Batch
from flatgauge.errors import LossError
from flatgauge.vectors import Params, check_twice_differentiable, zeros_like


class GaussNewton(BatchedOperator):
    """G = (1/N) Σ_batches Jᵀ (∇²_f ℓ) J, with J = ∂f/∂θ the Jacobian of the outputs.

    Equal to the Hessian where the outputs are linear in the parameters; its diagonal
    equals the Hessian's for networks that are piecewise affine in each tensor.
    """

    name = "Gauss-Newton"
    keeps = True

    def _prepare(self, batch: Batch) -> BatchProduct:
        point = self.objective.leaves()
        outputs, targets = self.objective.evaluate(point, batch)
        if not isinstance(outputs, Tensor):
            raise LossError(
                f"the Gauss-Newton matrix needs outputs that are one tensor, but the model "
                f"returned {type(outputs).__name__}: pass forward= that picks it."
            )
        free = outputs.detach().requires_grad_()
        total = self.objective.loss.total(free, targets)[0]
        slope = torch.autograd.grad(total, free, create_graph=True)[0]

        def curve(change: Tensor) -> Tensor:
            if not slope.requires_grad:
                return torch.zeros_like(change)
            return torch.autograd.grad(
                slope, free, change, retain_graph=True, materialize_grads=True
            )[0]

        return sandwich(outputs, point, curve)


def sandwich(
    outputs: Tensor, point: Params, middle: Callable[[Tensor], Tensor]
) -> BatchProduct:
    """V ↦ Jᵀ M(J v) for J = ∂outputs/∂point, by reverse differentiation alone."""
    if not outputs.requires_grad:
        return lambda vectors: [zeros_like(point) for _ in vectors]
    forward = _jacobian(outputs, point)

    def product(vector: Params) -> Params:
        images = torch.autograd.grad(
            outputs,
            list(point.values()),
            middle(forward(vector)),
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        return dict(zip(point, images, strict=True))

    return lambda vectors: [product(vector) for vector in vectors]


def jacobian_product(outputs: Tensor, point: Params, vector: Params) -> Tensor:
    """J v for J = ∂outputs/∂point."""
    if not outputs.requires_grad:
        return torch.zeros_like(outputs)
    return _jacobian(outputs, point)(vector)


def _jacobian(outputs: Tensor, point: Params) -> Callable[[Params], Tensor]:
    """V ↦ J v, as the derivative of Jᵀu (linear in the dummy u) in the direction v.

    That needs no forward-mode rules of the model's operations.
    """
    dummy = torch.zeros_like(outputs).requires_grad_()
    pulled = torch.autograd.grad(
        outputs,
        list(point.values()),
        dummy,
        create_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    check_twice_differentiable(pulled)
    linear = {n: p for n, p in zip(point, pulled, strict=True) if p.requires_grad}

    def product(vector: Params) -> Tensor:
        if not linear:
            return torch.zeros_like(dummy)
        return torch.autograd.grad(
            list(linear.values()),
            dummy,
            [vector[name] for name in linear],
            retain_graph=True,
        )[0]

    return product
