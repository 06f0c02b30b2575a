"""The Hessian of the objective."""

from __future__ import annotations

import warnings

from flatgauge.curvature.affine import is_affine_in_each_tensor
from flatgauge.curvature.batched import BatchedOperator, BatchProduct
from flatgauge.curvature.routes import Route, resolve_route
from flatgauge.curvature.routes.finite_difference import FiniteDifference
from flatgauge.data import Batch
from flatgauge.objective import Objective


class Hessian(BatchedOperator):
    """H = ∇²L(θ), as a symmetric operator on named vectors.

    Args:
        objective: model, data, loss and the point.
        route: "auto", "double-backward", "jvp-of-gradient" or "finite-difference".
        memory_budget: bytes that kept graphs may take; half of what is free if None.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> Hessian(Objective(model, data, loss="mse")).to_dense()  # 2 x xᵀ
    tensor([[2., 4.],
            [4., 8.]], dtype=torch.float64)
    """

    name = "Hessian"

    def __init__(
        self,
        objective: Objective,
        route: str | Route = "auto",
        *,
        memory_budget: int | None = None,
    ):
        super().__init__(objective, memory_budget=memory_budget)
        self.route = resolve_route(route)
        self.keeps = self.route.keeps
        if isinstance(self.route, FiniteDifference) and is_affine_in_each_tensor(
            objective
        ):
            warnings.warn(
                "finite differences of a piecewise-linear network measure a smoothed loss "
                "that depends on the step: use route='auto' for the Hessian itself.",
                stacklevel=2,
            )

    def _prepare(self, batch: Batch) -> BatchProduct:
        return self.route.prepare(self.objective, batch)
