"""Reverse over forward: the cheapest route that keeps nothing, where it is right."""

from __future__ import annotations

from functools import partial

from torch import Tensor
from torch.func import grad

from flatgauge.curvature.jacobian import jvp
from flatgauge.curvature.operator import Product
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch
from flatgauge.objective import Objective
from flatgauge.vectors import Params


class ReverseOverForward(Route):
    """H v = ∇_θ [d/dt L(θ + t v)].

    Silently wrong through LayerNorm and train-mode BatchNorm on torch 2.13, so it is
    used only where it agrees with double backward.
    """

    name = "reverse-over-forward"

    def prepare(self, objective: Objective, batch: Batch) -> Product:
        """Nothing to prepare: each vector runs its own pass."""

        def product(vector: Params) -> Params:
            def slope(point: Params) -> Tensor:
                total = partial(objective.batch_total, batch=batch)
                return jvp(total, (point,), (vector,))[1]

            return grad(slope)(objective.parameters)

        return product
