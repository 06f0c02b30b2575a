"""The Hessian of the objective."""

from __future__ import annotations

import warnings

from flatgauge.curvature.affine import is_affine_in_each_tensor
from flatgauge.curvature.plan import EXPECTED
from flatgauge.curvature.products import CurvatureOperator
from flatgauge.curvature.routes import Route
from flatgauge.objective import Objective


class Hessian(CurvatureOperator):
    """H = ∇²L(θ), as a symmetric operator on named vectors.

    Args:
        objective: model, data, loss and the point.
        route: "auto" (double backward, or what `plan` finds to be faster and right), or
            one of `flatgauge.curvature.routes.ROUTES` by name, such as "double-backward",
            "reverse-over-forward" or "finite-difference".
        expect: how many products are coming, about.
        memory_budget: bytes of the device that may be in use; the objective's `memory`
            if None.

    `plan` says how products are made, and why.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> Hessian(Objective(model, data, loss="mse")).to_dense()  # 2 x xᵀ
    tensor([[2., 4.],
            [4., 8.]], dtype=torch.float64)
    """

    name = "Hessian"
    truth = "double-backward"

    def __init__(
        self,
        objective: Objective,
        route: str | Route = "auto",
        *,
        expect: int = EXPECTED,
        memory_budget: int | None = None,
    ):
        super().__init__(objective, route, expect=expect, memory_budget=memory_budget)
        name = route if isinstance(route, str) else route.name
        if name == "finite-difference" and is_affine_in_each_tensor(objective):
            warnings.warn(
                "finite differences of a piecewise-linear network measure a smoothed loss "
                "that depends on the step: use route='auto' for the Hessian itself.",
                stacklevel=2,
            )
