"""Products with the Jacobian J = ∂outputs/∂θ and its transpose."""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from flatgauge.curvature.operator import Product
from flatgauge.vectors import (
    Params,
    check_twice_differentiable,
    derivative_errors,
    zeros_like,
)


def pulled_back(
    outputs: Tensor, point: Params, vector: Tensor, *, create_graph: bool = False
) -> Params:
    """Jᵀu, with zeros for parameters that the outputs do not depend on."""
    if not outputs.requires_grad:
        return zeros_like(point)
    slopes = torch.autograd.grad(
        outputs,
        list(point.values()),
        vector,
        retain_graph=True,
        create_graph=create_graph,
        allow_unused=True,
        materialize_grads=True,
    )
    return dict(zip(point, slopes, strict=True))


def sandwich(
    outputs: Tensor, point: Params, middle: Callable[[Tensor], Tensor]
) -> Product:
    """The map v ↦ Jᵀ M(J v), by reverse differentiation alone."""
    forward = _jacobian(outputs, point)
    return lambda vector: pulled_back(outputs, point, middle(forward(vector)))


def jacobian_product(outputs: Tensor, point: Params, vector: Params) -> Tensor:
    """J v, by reverse differentiation alone."""
    with derivative_errors("product with the Jacobian"):
        return _jacobian(outputs, point)(vector)


def _jacobian(outputs: Tensor, point: Params) -> Callable[[Params], Tensor]:
    """The map v ↦ J v: the derivative of Jᵀu, linear in the dummy u, along v.

    That needs no forward-mode rules of the model's operations.
    """
    dummy = torch.zeros_like(outputs).requires_grad_()
    pulled = pulled_back(outputs, point, dummy, create_graph=True)
    check_twice_differentiable(pulled.values())
    linear = {name: slope for name, slope in pulled.items() if slope.requires_grad}

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


def jvp(function: Callable[..., Any], primals: tuple, tangents: tuple) -> tuple:
    """`torch.func.jvp`, in silence: a function's value and its derivative J v.

    When torch first differentiates forward it compiles some of its rules in a way that it
    has deprecated, and warns: as a FutureWarning from 2.15 on, which everybody sees, and
    which is an error where warnings are errors.
    """
    _load_rules()
    return torch.func.jvp(function, primals, tangents)


@cache
def _load_rules() -> None:
    with warnings.catch_warnings(), contextlib.suppress(ImportError):
        warnings.simplefilter("ignore")
        importlib.import_module("torch._decomp.decompositions_for_jvp")
