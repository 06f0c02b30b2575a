"""Whether two products with the same vector are the same."""

from __future__ import annotations

import math

import torch

from flatgauge.objective import Objective
from flatgauge.vectors import Params, add, norm

# The relative difference of two products in float64 that is rounding.
AGREEMENT = 1e-9
# The same in the working precision, where it only shows what is wrong altogether.
COARSE = {torch.float64: 1e-7, torch.float32: 1e-3}
COARSE_TF32 = 0.05


def difference(found: Params, right: Params) -> float:
    """The relative distance; infinite if it is no number."""
    norms = torch.stack([norm(add(found, right, -1.0)), norm(right)])
    distance, size = norms.tolist()
    if not math.isfinite(distance):
        return math.inf
    return distance / size if size > 0 else distance


def check_product(found: Params, right: Params, objective: Objective) -> None:
    """Raise a RuntimeError unless a product is about the right one."""
    allowed = COARSE[objective.dtype]
    if objective.precision == "tf32":
        allowed = max(allowed, COARSE_TF32)
    wrong = difference(found, right)
    if wrong > allowed:
        raise RuntimeError(f"its product is off by {wrong:.1e}")
