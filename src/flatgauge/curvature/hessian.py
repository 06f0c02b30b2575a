"""The Hessian of the objective, and the generalized Gauss-Newton matrix."""

from __future__ import annotations

from flatgauge.curvature.curvature_operator import CurvatureOperator, all_is_lost
from flatgauge.curvature.loss_noise import LossNoise, noise_share
from flatgauge.errors import LossError, ModelError
from flatgauge.losses import CallableLoss
from flatgauge.memo import once
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
    >>> import flatgauge as fg
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> Hessian(fg.Objective(model, data, loss="mse")).to_dense()  # 2 x xᵀ
    tensor([[2., 4.],
            [4., 8.]], dtype=torch.float64)
    """

    name = "Hessian"
    truth = "double-backward"

    @property
    def rounding(self) -> float:
        """With what the rounding of a user's loss becomes in the network."""
        return max(super().rounding, loss_rounding(self.objective))


class GaussNewton(CurvatureOperator):
    """G = (1/N) Σ_batches Jᵀ (∇²_f ℓ) J, with J = ∂f/∂θ the Jacobian of the outputs.

    Equal to the Hessian where the outputs are linear in the parameters; its diagonal
    equals the Hessian's for networks that are piecewise affine in each tensor.

    Args:
        objective: model, data, loss and the point.
        route: "auto" ("reverse-twice", or what `plan` finds to be faster and right),
            "reverse-twice" or "forward-and-reverse".
        expect: as for `Hessian`.
        memory_budget: as for `Hessian`.

    `plan` says how products are made, and why.
    """

    name = "Gauss-Newton"
    truth = "reverse-twice"

    @property
    def rounding(self) -> float:
        """With what the rounding of a user's loss becomes in the network."""
        return max(super().rounding, loss_rounding(self.objective))


@once
def loss_rounding(objective: Objective) -> float:
    """What rounding inside of a user's loss changes of the Hessian, as a share of it.

    Raises:
        LossError: if it is all of it.
    """
    loss = objective.loss
    if not isinstance(loss, CallableLoss):
        return loss.rounding
    noise = objective.under(LossNoise(loss))
    hessian, added = (
        Hessian(one, "double-backward", memory_budget=0) for one in (objective, noise)
    )
    try:
        share = max(noise_share(hessian, added), loss.rounding)
    except (LossError, ModelError):
        # No tensors, or no second derivatives: there is nothing to look at.
        return loss.rounding
    if share >= 1:
        raise LossError(all_is_lost(objective))
    return share
