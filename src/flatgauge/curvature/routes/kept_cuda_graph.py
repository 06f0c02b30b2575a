"""Another route, prepared once a batch and its product recorded as a CUDA graph."""

from __future__ import annotations

import time

import torch

from flatgauge.curvature.operator import BatchProduct
from flatgauge.curvature.routes.recording import Desk, record
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch
from flatgauge.errors import FlatgaugeError
from flatgauge.objective import Objective
from flatgauge.vectors import first_line

# The share of the time of launching for which the device may go on computing.
HIDDEN = 0.1


class KeptCudaGraph(Route):
    """Neither the launches nor what does not depend on the vector is done again.

    Where a product cannot be recorded (its code waits for the device), it goes on by the
    inner route, and `failure` says why.

    Args:
        inner: a route that prepares what is worth keeping.
    """

    keeps = True

    def __init__(self, inner: Route):
        self.inner = inner
        self.name = f"{inner.name}, kept CUDA graph"
        self.matrix = inner.matrix
        self.replays = True
        self._desk: Desk | None = None

    def open(self, objective: Objective) -> None:
        """The desk of all batches."""
        if self._desk is None or self._desk.objective is not objective:
            self._desk = Desk.of(objective)

    def declines(self, objective: Objective, batch: Batch) -> str:
        """Why it does not pay, "" if it does, judged by the first batch.

        Where the device is busy with a batch long after it was launched, launches do not
        show.
        """
        if objective.device.type != "cuda":
            return "there is no GPU"
        # Once before: the first time, algorithms are chosen and memory is taken.
        self.inner.prepare(objective, batch)
        torch.cuda.current_stream().synchronize()
        started = time.perf_counter()
        self.inner.prepare(objective, batch)
        launched = time.perf_counter()
        torch.cuda.current_stream().synchronize()
        left = time.perf_counter() - launched
        if left > HIDDEN * (launched - started):
            return "launches do not show: computing takes longer"
        return ""

    def prepare(self, objective: Objective, batch: Batch) -> BatchProduct:
        """Prepare and record on one stream, where autograd will differentiate again."""
        self.open(objective)
        desk = self._desk
        if desk is None or not self.replays:
            return self.inner.prepare(objective, batch)
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(desk.stream):
            product = self.inner.prepare(objective, batch)
            desk.stream.synchronize()
        try:
            recording = record(lambda v: product([v])[0], desk, warmed=True)
        except (RuntimeError, FlatgaugeError) as error:
            self.replays, self.failure = False, first_line(error)
            return product
        return lambda vectors: [recording.product(vector) for vector in vectors]
