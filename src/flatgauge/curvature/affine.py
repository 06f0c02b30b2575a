"""Whether a network is piecewise affine in each of its parameter tensors.

For such networks (ReLU, leaky ReLU, max-pooling, eval-mode BatchNorm, residuals) the
diagonal blocks of the Hessian are those of the Gauss-Newton matrix, exactly. That is
checked on the model at hand, never assumed.
"""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.data import few_samples
from flatgauge.objective import Objective
from flatgauge.vectors import (
    check_twice_differentiable,
    derivative_errors,
    gaussian,
    generator,
)

# Samples times tensors that are looked at, and the fewest and most samples.
WORK = 96
FEWEST, MOST = 2, 16


def is_affine_in_each_tensor(objective: Objective) -> bool:
    """Whether the outputs are piecewise affine in each tensor; found out once a point."""
    return objective.once("affine", lambda: _check(objective))


def _check(objective: Objective) -> bool:
    """Check that ∂²⟨u, f⟩/∂W² v = 0 for every tensor W, with random u and v.

    A product that is zero for random u and v is zero for all, with probability one, on
    the samples looked at: the first few of the first batch. Piecewise-affine operations
    give an exact 0 here, and no threshold would do: small weights make every network
    nearly affine, and yet its Gauss-Newton diagonal is not the Hessian's.
    """
    with objective.isolated(), derivative_errors("second derivative"):
        batch = next(objective.batches())
        point = objective.leaves()
        count = min(max(WORK // len(point), FEWEST), MOST)
        outputs = objective.evaluate(point, few_samples(batch, count))[0]
        if not isinstance(outputs, Tensor):
            return False
        if not outputs.requires_grad:
            return True
        random = generator(0)
        weights = gaussian({"u": outputs.detach()}, random)["u"]
        directions = gaussian(point, random)
        slopes = torch.autograd.grad(
            outputs,
            list(point.values()),
            weights,
            create_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        check_twice_differentiable(slopes)
        for (name, tensor), slope in zip(point.items(), slopes, strict=True):
            if not slope.requires_grad:
                continue
            bend = torch.autograd.grad(
                slope,
                tensor,
                directions[name],
                retain_graph=True,
                allow_unused=True,
                materialize_grads=True,
            )[0]
            if bool(bend.any()):
                return False
    return True
