"""The Hessian of one batch, as the graph of its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import final

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from flatgauge.curvature.many import ManyProducts, stacked, unstacked
from flatgauge.curvature.operator import Product
from flatgauge.vectors import Params, ravel, size, unit_columns, unravel, zeros_like


@final
class GradientGraph:
    """v ↦ ∂⟨∇L, v⟩/∂θ, from the graph of ∇L.

    Args:
        point: θ, as leaves.
        curved: where the parts of ∇L that depend on θ end; their numbers are not kept.
        many: makes the same for many vectors at once, if that can be done.
    """

    def __init__(
        self,
        point: Params,
        curved: Mapping[str, GradientEdge],
        many: Callable[[Product], ManyProducts | None] | None = None,
    ):
        self.point, self.curved = point, curved
        self._many = many

    def __call__(self, vector: Params) -> Params:
        """One backward through the graph."""
        own = {name: leaf for name, leaf in self.point.items() if name in vector}
        pulled = [name for name in self.curved if name in vector]
        if not pulled:
            return zeros_like(vector)
        images = torch.autograd.grad(
            [self.curved[name] for name in pulled],
            list(own.values()),
            [vector[name] for name in pulled],
            retain_graph=True,
            allow_unused=True,
            materialize_grads=True,
        )
        return dict(zip(own, images, strict=True))

    @cached_property
    def at_once(self) -> ManyProducts | None:
        """Made, and compared with this, when it is first asked for."""
        return None if self._many is None else self._many(self)

    def many(self, vectors: list[Params]) -> list[Params]:
        """A_b v for vectors v of the same tensors."""
        if self.at_once is None:
            return [self(vector) for vector in vectors]
        return unstacked(self.at_once(stacked(vectors), vectors[0]))

    def matrix(self) -> Tensor:
        """A_b itself."""
        if self.at_once is not None:
            return self.at_once.matrix()
        columns = unit_columns(self.point, 0, size(self.point)).unbind(1)
        images = [self(unravel(column, self.point)) for column in columns]
        return torch.stack([ravel(image) for image in images], dim=1)
