"""Another route, prepared once a batch and its product recorded as a CUDA graph."""

from __future__ import annotations

import time

import torch

from flatgauge.curvature.operator import BatchProduct
from flatgauge.curvature.routes.recording import Desk, record
from flatgauge.curvature.routes.route import Route, Variant
from flatgauge.data import Batch
from flatgauge.objective import Objective


class KeptCudaGraph(Variant):
    """Neither the launches nor what does not depend on the vector is done again.

    It does not pay where the device is busy with a batch long after it was launched,
    which the first batch shows.
    """

    order = 3
    words = "kept CUDA graph"
    launches = True
    keeps = True
    counted = True
    replays = True
    _desk: Desk | None = None

    @classmethod
    def suits(cls, inner: Route, objective: Objective, batch: Batch) -> bool:
        """For a route that prepares what is worth keeping, on a GPU."""
        return objective.device.type == "cuda" and inner.keeps and inner.counted

    def open(self, objective: Objective) -> None:
        """The desk of all batches."""
        self._desk_of(objective)

    def prepare(self, objective: Objective, batch: Batch) -> BatchProduct:
        """Prepare and record on one stream, where autograd will differentiate again."""
        desk = self._desk_of(objective)
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(desk.stream):
            started = time.perf_counter()
            product = self.inner.prepare(objective, batch)
            launched = time.perf_counter()
            desk.stream.synchronize()
        slower = time.perf_counter() - launched > launched - started
        if self.hesitant and slower:
            raise RuntimeError("launches do not show: computing takes longer")
        recording = record(lambda v: product([v])[0], desk, warmed=True)
        self.hesitant = False
        return lambda vectors: [recording.product(vector) for vector in vectors]

    def _desk_of(self, objective: Objective) -> Desk:
        if self._desk is None or self._desk.objective is not objective:
            self._desk = Desk.of(objective)
        return self._desk
