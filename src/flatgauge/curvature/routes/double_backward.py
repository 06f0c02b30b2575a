"""Double backward: the truth that every other route to the Hessian must agree with."""

from __future__ import annotations

import torch

from flatgauge.curvature.operator import Product
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch
from flatgauge.kernels.convolution import OwnConvolutions
from flatgauge.kernels.layer_norm import OwnLayerNorms
from flatgauge.objective import Objective
from flatgauge.vectors import (
    Params,
    check_twice_differentiable,
    gradient_of,
    zeros_like,
)


class DoubleBackward(Route):
    """H v = ∂⟨∇L, v⟩/∂θ, from a graph of the gradient that serves many vectors."""

    name = "double-backward"
    keeps = True

    def prepare(self, objective: Objective, batch: Batch) -> Product:
        """Differentiate once and keep the graph."""
        point = objective.leaves()
        with OwnConvolutions(), OwnLayerNorms():
            total = objective.batch_total(point, batch)
        slopes = gradient_of(total, point, create_graph=True)
        check_twice_differentiable(slopes.values())
        curved = {name: slope for name, slope in slopes.items() if slope.requires_grad}

        def product(vector: Params) -> Params:
            if not curved:
                return zeros_like(point)
            images = torch.autograd.grad(
                list(curved.values()),
                list(point.values()),
                [vector[name] for name in curved],
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            return dict(zip(point, images, strict=True))

        return product
