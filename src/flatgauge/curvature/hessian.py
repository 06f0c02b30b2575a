"""The Hessian of the objective."""

from __future__ import annotations

import warnings

from flatgauge.curvature.affine import is_affine_in_each_tensor
from flatgauge.curvature.routed import EXPECTED, RoutedOperator
from flatgauge.curvature.routes import Route
from flatgauge.objective import Objective


class Hessian(RoutedOperator):
    """H = ∇²L(θ), as a symmetric operator on named vectors.

    Args:
        objective: model, data, loss and the point.
        route: "auto" (double backward, and the fastest that agrees with it on the first
            batch as soon as looking for it pays), or one of
            `flatgauge.curvature.routes.ROUTES` by name, such as "double-backward",
            "jvp-of-gradient" or "finite-difference".
        expect: how many products are coming, about.
        memory_budget: bytes; graphs are kept while they fill at most 65 % of them. Half
            of what is free if None.

    `choice` says which route was taken and what was seen of the others.

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
        if self.choice.route.name == "finite-difference":
            self._warn_of_kinks()

    def _warn_of_kinks(self) -> None:
        if is_affine_in_each_tensor(self.objective):
            warnings.warn(
                "finite differences of a piecewise-linear network measure a smoothed loss "
                "that depends on the step: use route='auto' for the Hessian itself.",
                stacklevel=3,
            )
