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
    takes_parts = True

    def prepare(self, objective: Objective, batch: Batch) -> Product:
        """Differentiate once and keep the graph."""
        point = objective.leaves()
        with OwnConvolutions(), OwnLayerNorms():
            total = objective.batch_total(point, batch)
        slopes = gradient_of(total, point, create_graph=True)
        check_twice_differentiable(slopes.values())
        curved = {name: slope for name, slope in slopes.items() if slope.requires_grad}

        def product(vector: Params) -> Params:
            own = {name: leaf for name, leaf in point.items() if name in vector}
            pulled = [name for name in curved if name in vector]
            if not pulled:
                return zeros_like(own)
            images = torch.autograd.grad(
                [curved[name] for name in pulled],
                list(own.values()),
                [vector[name] for name in pulled],
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )
            return dict(zip(own, images, strict=True))

        return product
