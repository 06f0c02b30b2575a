"""The generalized Gauss-Newton matrix."""

from __future__ import annotations

from flatgauge.curvature.products import CurvatureOperator


class GaussNewton(CurvatureOperator):
    """G = (1/N) Σ_batches Jᵀ (∇²_f ℓ) J, with J = ∂f/∂θ the Jacobian of the outputs.

    Equal to the Hessian where the outputs are linear in the parameters; its diagonal
    equals the Hessian's for networks that are piecewise affine in each tensor.

    Args:
        objective: model, data, loss and the point.
        route: "auto" ("reverse-twice", or what `plan` finds to be faster and right),
            "reverse-twice" or "forward-and-reverse".
        expect: how many products are coming, about.
        memory_budget: bytes of the device that may be in use; the objective's `memory`
            if None.

    `plan` says how products are made, and why.
    """

    name = "Gauss-Newton"
    truth = "reverse-twice"
