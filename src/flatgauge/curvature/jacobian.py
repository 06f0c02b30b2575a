"""Products with the Jacobian J = ∂outputs/∂θ, by reverse differentiation alone."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flatgauge.curvature.operator import BatchProduct
from flatgauge.vectors import (
    Params,
    check_twice_differentiable,
    derivative_errors,
    zeros_like,
)


def sandwich(
    outputs: Tensor, point: Params, middle: Callable[[Tensor], Tensor]
) -> BatchProduct:
    """V ↦ Jᵀ M(J v)."""
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
    """J v."""
    if not outputs.requires_grad:
        return torch.zeros_like(outputs)
    with derivative_errors("product with the Jacobian"):
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
