"""Double backward: the truth that every other route to the Hessian must agree with."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import final

import torch
from torch.autograd.graph import GradientEdge, get_gradient_edge

from flatgauge.curvature.many import ManyAtOnce, many_products
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
        small = objective.device.type == "cpu" and not objective.sharded
        many = partial(many_products, objective, batch) if small else None
        curved = {n: get_gradient_edge(s) for n, s in slopes.items() if s.requires_grad}
        return GradientGraph(point, many, curved)


@final
@dataclass(frozen=True, eq=False)
class GradientGraph(ManyAtOnce):
    """v ↦ ∂⟨∇L, v⟩/∂θ. `curved` is where the parts of ∇L that depend on θ end."""

    curved: dict[str, GradientEdge]

    def __call__(self, vector: Params) -> Params:
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
            materialize_grads=True,
        )
        return dict(zip(own, images, strict=True))
