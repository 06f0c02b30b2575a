"""Central differences of gradients, one tensor at a time."""

from __future__ import annotations

import warnings

import torch
from torch import Tensor

from flatgauge.curvature.operator import Product
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch
from flatgauge.objective import Objective
from flatgauge.piecewise.affine import is_affine_in_each_tensor
from flatgauge.vectors import Params, add, gradient_of, zeros_like

# Balance truncation (step²) against rounding (eps/step).
RELATIVE_STEP = {torch.float32: 1e-3, torch.float64: 1e-5}


class FiniteDifference(Route):
    """H v ≈ Σ_l [∇L(θ + r_l v_l) − ∇L(θ − r_l v_l)] / (2 r_l), over the tensors l.

    The step r_l makes the perturbation of tensor l as large as `relative_step` times
    its own root mean square, so that rescaled layers get rescaled steps. On networks
    with kinks (ReLU) this measures a smoothed loss: the step is part of the definition.
    """

    name = "finite-difference"

    def __init__(self, relative_step: float | None = None):
        self.relative_step = relative_step

    def check(self, objective: Objective) -> None:
        """Warn of kinks."""
        if is_affine_in_each_tensor(objective):
            warnings.warn(
                "finite differences of a piecewise-linear network measure a smoothed loss "
                "that depends on the step: use route='auto' for the Hessian itself.",
                stacklevel=3,
            )

    def prepare(self, objective: Objective, batch: Batch) -> Product:
        """Nothing to prepare: two gradients for each tensor and vector."""
        point = objective.parameters
        relative = self.relative_step or RELATIVE_STEP[objective.dtype]
        overall = _root_mean_square(torch.cat([t.reshape(-1) for t in point.values()]))

        def gradient(moved: Params) -> Params:
            leaves = {n: t.detach().requires_grad_() for n, t in moved.items()}
            return gradient_of(objective.batch_total(leaves, batch), leaves)

        def product(vector: Params) -> Params:
            image = zeros_like(point)
            for name, tensor in point.items():
                length = _root_mean_square(vector[name])
                if length == 0:
                    continue
                own = _root_mean_square(tensor)
                step = relative * (own if own > 0 else overall) / length
                above = gradient({**point, name: tensor + step * vector[name]})
                below = gradient({**point, name: tensor - step * vector[name]})
                image = add(image, add(above, below, -1.0), 1 / (2 * step))
            return image

        return product


def _root_mean_square(tensor: Tensor) -> float:
    if not tensor.numel():
        return 0.0
    return float(tensor.double().square().mean().sqrt())
