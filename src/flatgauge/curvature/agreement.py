"""Whether two results that should be equal are, up to rounding."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flatgauge.objective import Objective
from flatgauge.own_precision import own_precision
from flatgauge.vectors import Params, add, norm

# The relative distance of two products in float64 that is rounding: deep networks leave
# 1e-12 or so, while a wrong rule of differentiation is off by 1e-3 and more.
SAME_PRODUCT = 1e-9
# Units in the last place of the largest entry that rounding may add to any other: sums
# of many terms of its size, some of which cancel.
CANCELLED_UNITS = 1e3
# The same of factors with 10 bits or less.
COARSE_PRODUCT = 0.05


def working_rounding(objective: Objective, in_double: float = 1e-7) -> float:
    """The share of a result that rounding may change, as precisely as the network works.

    It is some ten thousand units in the last place of float32, and fifty of the 10 bits
    of TF32, so that it only shows what is wrong altogether.
    """
    if objective.precision == "tf32":
        return COARSE_PRODUCT
    allowed = {torch.float64: in_double, torch.float32: 1e-3}
    return allowed.get(own_precision(objective), COARSE_PRODUCT)


def is_near(found: Tensor, right: Tensor, allowed: float, size: Tensor) -> bool:
    """Within a share of `size` everywhere, and a few roundings of the largest of all.

    Not within a share of the largest: others may be small and meet large inputs.
    """
    return bool(within((found - right).abs(), allowed, size).all())


def within(distance: Tensor, allowed: float, size: Tensor) -> Tensor:
    """Where distances are."""
    if not size.numel():
        return distance <= allowed * size
    floor = CANCELLED_UNITS * torch.finfo(size.dtype).eps * size.max()
    return distance <= allowed * size + floor


def difference(found: Params, right: Params) -> float:
    """The relative distance; infinite if it is no number."""
    norms = torch.stack([norm(add(found, right, -1.0)), norm(right)])
    distance, size = norms.tolist()
    if not math.isfinite(distance):
        return math.inf
    return distance / size if size > 0 else distance


def is_same_product(found: Params, right: Params, precision: torch.dtype) -> bool:
    """Whether two ways to one product differ by rounding alone, in some precision."""
    allowed = CANCELLED_UNITS * torch.finfo(precision).eps
    return difference(found, right) <= max(SAME_PRODUCT, allowed)


def check_product(found: Params, right: Params, objective: Objective) -> None:
    """Raise a RuntimeError unless a product is about the right one."""
    wrong = difference(found, right)
    if wrong > working_rounding(objective):
        raise RuntimeError(f"its product is off by {wrong:.1e}")
