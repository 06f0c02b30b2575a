"""Double backward: the truth that every other route to the Hessian must agree with."""

from __future__ import annotations

from functools import partial

from torch.autograd.graph import get_gradient_edge

from flatgauge.curvature.gradient_graph import GradientGraph
from flatgauge.curvature.many import many_products
from flatgauge.curvature.operator import Product
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch
from flatgauge.kernels.convolution import OwnConvolutions
from flatgauge.kernels.layer_norm import OwnLayerNorms
from flatgauge.objective import Objective
from flatgauge.vectors import check_twice_differentiable, gradient_of


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
        curved = {
            name: get_gradient_edge(slope)
            for name, slope in slopes.items()
            if slope.requires_grad
        }
        small = objective.device.type == "cpu" and not objective.sharded
        many = partial(many_products, objective, batch) if small else None
        return GradientGraph(point, curved, many)
