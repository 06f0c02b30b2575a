"""Reverse differentiation alone: the truth for the Gauss-Newton matrix."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.curvature.jacobian import sandwich
from flatgauge.curvature.operator import Product
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch
from flatgauge.errors import LossError
from flatgauge.objective import Objective


class ReverseTwice(Route):
    """G v = Jᵀ (∇²_f ℓ) (J v), from graphs of f and of Jᵀu that serve many vectors."""

    name = "reverse-twice"
    matrix = "Gauss-Newton"
    keeps = True

    def prepare(self, objective: Objective, batch: Batch) -> Product:
        """Differentiate once and keep the graphs."""
        point = objective.leaves()
        outputs, targets = objective.evaluate(point, batch)
        if not isinstance(outputs, Tensor):
            raise LossError(
                f"the Gauss-Newton matrix needs outputs that are one tensor, but the model "
                f"returned {type(outputs).__name__}: pass forward= that picks it."
            )
        free = outputs.detach().requires_grad_()
        total = objective.loss.sum(free, targets)
        slope = torch.autograd.grad(total, free, create_graph=True)[0]

        def curve(change: Tensor) -> Tensor:
            if not slope.requires_grad:
                return torch.zeros_like(change)
            return torch.autograd.grad(
                slope, free, change, retain_graph=True, materialize_grads=True
            )[0]

        return sandwich(outputs, point, curve)
