"""Forward and then reverse: a Gauss-Newton product that keeps nothing."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.func import grad, vjp

from flatgauge.curvature.jacobian import jvp
from flatgauge.curvature.operator import Product
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch
from flatgauge.objective import Objective
from flatgauge.vectors import Params


class ForwardAndReverse(Route):
    """G v = Jᵀ (∇²_f ℓ) (J v), with J v by forward differentiation."""

    name = "forward-and-reverse"
    matrix = "Gauss-Newton"

    def prepare(self, objective: Objective, batch: Batch) -> Product:
        """Nothing to prepare: each vector runs its own passes."""

        def product(vector: Params) -> Params:
            aligned: list[Any] = []

            def outputs(params: Params) -> Tensor:
                found, targets = objective.evaluate(params, batch)
                aligned[:] = [targets]
                return found

            def total(free: Tensor) -> Tensor:
                return objective.loss.sum(free, *aligned)

            values, pull_back = vjp(outputs, objective.parameters)[:2]
            change = jvp(outputs, (objective.parameters,), (vector,))[1]
            return pull_back(jvp(grad(total), (values,), (change,))[1])[0]

        return product
