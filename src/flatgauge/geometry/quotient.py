"""The quotient of parameter space by its rescalings: vertical and horizontal parts.

All vectors here are whitened, η = S⁻¹ξ, so that the metric is the Euclidean inner
product and tensors of norm zero drop out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from flatgauge.errors import OptionError
from flatgauge.geometry.metric import Metric
from flatgauge.vectors import Params, add, dot, multiply, scale, zeros_like

# Vertical directions up to which their Gram matrix is formed.
LIMIT = 2000

Projection = Callable[[Params], Params]


def whitened_vertical(
    vertical: Sequence[Params], metric: Metric, point: Params
) -> list[Params]:
    """S⁻¹v for every vertical direction v, with 0 where S is 0."""
    if len(vertical) > LIMIT:
        raise OptionError(
            f"the projection needs the inner products of {len(vertical)} vertical "
            f"directions, above the limit of {LIMIT}: use metric='layer'."
        )
    inverse = {
        name: torch.where(s > 0, 1 / s.clamp_min(torch.finfo(s.dtype).tiny), 0.0)
        for name, s in metric.scales(point).items()
    }
    return [multiply(direction, inverse) for direction in vertical]


def vertical_projection(
    vertical: Sequence[Params], metric: Metric, point: Params
) -> Projection:
    """η ↦ V (VᵀV)⁺ Vᵀ η: the part of η along the symmetries' orbit."""
    directions = whitened_vertical(vertical, metric, point)
    if not directions:
        return lambda vector: scale(vector, 0.0)
    gram = torch.stack([_inner(directions, one) for one in directions])
    inverse = torch.linalg.pinv(gram, hermitian=True)

    def project(vector: Params) -> Params:
        total = zeros_like(vector)
        weights = inverse @ _inner(directions, vector)
        for weight, direction in zip(weights, directions, strict=True):
            total = add(total, direction, weight)
        return total

    return project


def horizontal_projection(
    vertical: Sequence[Params], metric: Metric, point: Params
) -> Projection:
    """η minus its vertical part."""
    project = vertical_projection(vertical, metric, point)
    return lambda vector: add(vector, project(vector), -1.0)


def _inner(directions: Sequence[Params], vector: Params) -> Tensor:
    return torch.stack([dot(direction, vector) for direction in directions])
