"""Linearization of the gradient: dear to prepare, cheap for dozens of vectors."""

from __future__ import annotations

import warnings

from torch import Tensor
from torch.func import grad, linearize

from flatgauge.curvature.operator import BatchProduct
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch
from flatgauge.objective import Objective
from flatgauge.vectors import Params


class Linearized(Route):
    """v ↦ H v as a traced linear function (`torch.func.linearize` of the gradient).

    The trace costs seconds a batch, which only many vectors earn back, and it is kept
    for every batch whatever the memory budget.
    """

    name = "linearized"
    tried = False
    keeps = True

    def prepare(self, objective: Objective, batch: Batch) -> BatchProduct:
        """Trace the derivative of the gradient."""

        def total(params: Params) -> Tensor:
            return objective.batch_total(params, batch)

        with warnings.catch_warnings():
            # torch's own, about the constants of its trace.
            warnings.filterwarnings("ignore", message="Attempted to insert a get_attr")
            _, product = linearize(grad(total), objective.parameters)
        return lambda vectors: [product(vector) for vector in vectors]
