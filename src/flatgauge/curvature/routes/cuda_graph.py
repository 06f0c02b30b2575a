"""Another route, recorded once as a CUDA graph and replayed for every batch and vector."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.curvature.operator import BatchProduct
from flatgauge.curvature.routes.recording import Recording, record
from flatgauge.curvature.routes.route import Route, Variant
from flatgauge.data import Batch, map_batch, tensors_in
from flatgauge.objective import Objective
from flatgauge.vectors import Params


class CudaGraph(Variant):
    """One recording serves all batches of the same shapes, which are copied into it."""

    order = 2
    launches = True

    def __init__(self, inner: Route):
        self.inner = inner
        self.name = f"{inner.name}, CUDA graph"
        self._recordings: dict[tuple[torch.Size, ...], tuple[Recording, Batch]] = {}

    @classmethod
    def suits(cls, inner: Route, objective: Objective, batch: Batch) -> bool:
        """On a GPU."""
        return objective.device.type == "cuda"

    def prepare(self, objective: Objective, batch: Batch) -> BatchProduct:
        """Record for new shapes, else copy the batch into the recording."""
        tensors = _tensors(batch)
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._recordings:
            self._recordings[shapes] = self._record(objective, batch)
        recording, own = self._recordings[shapes]
        for mine, theirs in zip(_tensors(own), tensors, strict=True):
            mine.copy_(theirs)
        return lambda vectors: [recording.product(vector) for vector in vectors]

    def _record(self, objective: Objective, batch: Batch) -> tuple[Recording, Batch]:
        own = map_batch(torch.clone, batch)

        def product(vector: Params) -> Params:
            return self.inner.prepare(objective, own)([vector])[0]

        return record(product, objective.parameters, torch.cuda.Stream()), own


def _tensors(batch: Batch) -> list[Tensor]:
    return tensors_in([batch.whole, batch.inputs, batch.targets])
