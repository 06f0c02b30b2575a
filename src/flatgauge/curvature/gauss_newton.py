"""The generalized Gauss-Newton matrix."""

from __future__ import annotations

from flatgauge.curvature.routed import RoutedOperator


class GaussNewton(RoutedOperator):
    """G = (1/N) Σ_batches Jᵀ (∇²_f ℓ) J, with J = ∂f/∂θ the Jacobian of the outputs.

    Equal to the Hessian where the outputs are linear in the parameters; its diagonal
    equals the Hessian's for networks that are piecewise affine in each tensor.

    Args:
        objective: model, data, loss and the point.
        route: "auto" ("reverse-twice", and the fastest that agrees with it on the first
            batch as soon as looking for it pays), "reverse-twice" or
            "forward-and-reverse".
        expect: how many products are coming, about.
        memory_budget: bytes; graphs are kept while they fill at most 65 % of them. Half
            of what is free if None.

    `choice` says which route was taken and what was seen of the others.
    """

    name = "Gauss-Newton"
    truth = "reverse-twice"
