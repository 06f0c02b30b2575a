"""Another route, recorded once as a CUDA graph and replayed for every batch and vector."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.curvature.operator import BatchProduct
from flatgauge.curvature.routes.recording import Desk, Recording, record
from flatgauge.curvature.routes.route import Route, Variant
from flatgauge.data import Batch, made_of_tensors, map_batch, tensors_in
from flatgauge.objective import Objective
from flatgauge.vectors import Params


class CudaGraph(Variant):
    """One recording serves all batches of the first one's shapes, copied into it.

    Batches of other shapes go by the inner route.
    """

    order = 2
    words = "CUDA graph"
    launches = True
    _recording: tuple[Recording, Batch] | None = None

    @classmethod
    def suits(cls, inner: Route, objective: Objective, batch: Batch) -> bool:
        """On a GPU, for batches of which nothing but tensors can differ."""
        return objective.device.type == "cuda" and made_of_tensors(batch.whole)

    def prepare(self, objective: Objective, batch: Batch) -> BatchProduct:
        """Record at the first batch, then copy each batch into the recording."""
        if (
            self._recording is None
            or self._recording[0].desk.objective is not objective
        ):
            self._recording = self._record(objective, batch)
        recording, own = self._recording
        if _shapes(own) != _shapes(batch):
            return self.inner.prepare(objective, batch)
        for mine, theirs in zip(_tensors(own), _tensors(batch), strict=True):
            mine.copy_(theirs)
        return lambda vectors: [recording.product(vector) for vector in vectors]

    def _record(self, objective: Objective, batch: Batch) -> tuple[Recording, Batch]:
        # Not self.inner inside: a recording must not hold on to its owner.
        own, inner = map_batch(torch.clone, batch), self.inner

        def product(vector: Params) -> Params:
            return inner.prepare(objective, own)([vector])[0]

        return record(product, Desk.of(objective)), own


def _tensors(batch: Batch) -> list[Tensor]:
    return tensors_in([batch.whole, batch.inputs, batch.targets])


def _shapes(batch: Batch) -> list[torch.Size]:
    return [tensor.shape for tensor in _tensors(batch)]
