"""The Hessian of the objective."""

from __future__ import annotations

import warnings

from flatgauge.curvature.affine import is_affine_in_each_tensor
from flatgauge.curvature.batched import BatchedOperator, BatchProduct
from flatgauge.curvature.routes import Route, resolve_route
from flatgauge.curvature.routes.choose import Choice, choose_route
from flatgauge.curvature.routes.double_backward import DoubleBackward
from flatgauge.curvature.routes.finite_difference import FiniteDifference
from flatgauge.data import Batch
from flatgauge.objective import Objective


class Hessian(BatchedOperator):
    """H = ∇²L(θ), as a symmetric operator on named vectors.

    Args:
        objective: model, data, loss and the point.
        route: "auto" (the fastest that agrees with double backward on the first batch),
            or one of `flatgauge.curvature.routes.ROUTES` by name, such as
            "double-backward", "jvp-of-gradient" or "finite-difference".
        memory_budget: bytes that kept graphs may take; half of what is free if None.

    `choice` says which route was taken and what was seen of the others.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> Hessian(Objective(model, data, loss="mse")).to_dense()  # 2 x xᵀ
    tensor([[2., 4.],
            [4., 8.]], dtype=torch.float64)
    """

    name = "Hessian"
    keeps = True

    def __init__(
        self,
        objective: Objective,
        route: str | Route = "auto",
        *,
        memory_budget: int | None = None,
    ):
        super().__init__(objective, memory_budget=memory_budget)
        self.choice = None if route == "auto" else Choice(resolve_route(route))
        self._follow_choice()
        if isinstance(route, FiniteDifference) or route == FiniteDifference.name:
            self._warn_of_kinks()

    def _begin(self, batch: Batch) -> None:
        if self.choice is None:
            self.choice = choose_route(self.objective, batch, self._budget())
            self._follow_choice()

    def _follow_choice(self) -> None:
        if self.choice is not None:
            self.keeps = self.choice.route.keeps
            self.counts = isinstance(self.choice.route, DoubleBackward)

    def _prepare(self, batch: Batch) -> BatchProduct:
        assert self.choice is not None
        return self.choice.route.prepare(self.objective, batch)

    def _warn_of_kinks(self) -> None:
        if is_affine_in_each_tensor(self.objective):
            warnings.warn(
                "finite differences of a piecewise-linear network measure a smoothed loss "
                "that depends on the step: use route='auto' for the Hessian itself.",
                stacklevel=3,
            )
