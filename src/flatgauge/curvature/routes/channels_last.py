"""Another route on images and kernels laid out with their channels last."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.curvature.operator import Product
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch, map_batch
from flatgauge.nested import tensors_in
from flatgauge.objective import Objective
from flatgauge.vectors import map_tensors


class ChannelsLast(Route):
    """The inner route on channels_last copies, which GPU convolutions prefer.

    Args:
        inner: a route that keeps nothing.
    """

    def __init__(self, inner: Route):
        self.inner = inner
        self.name = f"{inner.name}, channels last"
        self.matrix = inner.matrix
        self._moved: tuple[Objective, Objective] | None = None

    @staticmethod
    def suits(objective: Objective, batch: Batch) -> bool:
        """For images on a GPU."""
        images = any(tensor.ndim == 4 for tensor in tensors_in(batch.inputs))
        return images and objective.device.type == "cuda"

    def prepare(self, objective: Objective, batch: Batch) -> Product:
        """Convert the batch, the point and every vector; results keep their layout."""
        if self._moved is None or self._moved[0] is not objective:
            laid_out = map_tensors(_channels_last, objective.parameters)
            self._moved = (objective, objective.at(laid_out))
        moved = self._moved[1]
        product = self.inner.prepare(moved, map_batch(_channels_last, batch))
        return lambda vector: product(map_tensors(_channels_last, vector))


def _channels_last(tensor: Tensor) -> Tensor:
    if tensor.ndim != 4:
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)
