"""Double backward: the truth that every other route to the Hessian must agree with."""

from __future__ import annotations

from typing import final

import torch

from flatgauge.curvature.many import ManyProducts
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
        return GradientGraph(point, curved)


@final
class GradientGraph(ManyProducts):
    """v ↦ ∂⟨∇L, v⟩/∂θ, from the graph of ∇L.

    Args:
        point: θ, as leaves.
        curved: the parts of ∇L that depend on θ.
    """

    def __init__(self, point: Params, curved: Params):
        self.point, self.curved = point, curved

    def pulled(self, vector: Params, *, together: bool) -> Params:
        """One backward through the graph."""
        own = {name: leaf for name, leaf in self.point.items() if name in vector}
        pulled = [name for name in self.curved if name in vector]
        if not pulled:
            return zeros_like(vector)
        images = torch.autograd.grad(
            [self.curved[name] for name in pulled],
            list(own.values()),
            [vector[name] for name in pulled],
            retain_graph=True,
            allow_unused=True,
            is_grads_batched=together,
        )
        # What is not reached is 0; torch would make one zero for all of the vectors.
        return {
            name: torch.zeros_like(vector[name]) if image is None else image
            for name, image in zip(own, images, strict=True)
        }
