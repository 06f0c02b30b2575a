"""Another route on images and kernels laid out with their channels last."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch, map_batch
from flatgauge.objective import Objective
from flatgauge.vectors import Params, map_tensors


class ChannelsLast(Route):
    """The inner route on channels_last copies, which GPU convolutions prefer."""

    def __init__(self, inner: Route):
        self.inner = inner
        self.name = f"{inner.name}, channels last"
        self.keeps = inner.keeps
        self._moved: tuple[Objective, Objective] | None = None

    def prepare(
        self, objective: Objective, batch: Batch
    ) -> Callable[[list[Params]], list[Params]]:
        """Convert the batch, the point and every vector; results keep their layout."""
        # Once: the check of the point waits for the device, which a recording cannot.
        if self._moved is None or self._moved[0] is not objective:
            laid_out = map_tensors(_channels_last, objective.parameters)
            self._moved = (objective, objective.at(laid_out))
        moved = self._moved[1]
        product = self.inner.prepare(moved, map_batch(_channels_last, batch))
        return lambda vectors: product(
            [map_tensors(_channels_last, vector) for vector in vectors]
        )


def _channels_last(tensor: Tensor) -> Tensor:
    if tensor.ndim != 4:
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)
