"""Another route, prepared once per batch and its product recorded as a CUDA graph."""

from __future__ import annotations

import math
import time

import torch

from flatgauge.curvature.operator import Product
from flatgauge.curvature.routes.recording import RecordingContext, record
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch
from flatgauge.errors import FlatgaugeError
from flatgauge.objective import Objective
from flatgauge.vectors import first_line, gaussian, generator

# What the device still has to do after the launches of a product, in units of their time,
# from which on replays were not more than 6 % faster (ResNet-50, ViT-B, GPT-2: 0.5 to 0.6).
BUSY = 0.15
# What a recording must save, in units of what it takes.
LEAST_WORTH = 1.0


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
        self._context: RecordingContext | None = None

    def open(self, objective: Objective) -> None:
        """The context of all batches."""
        if self._context is None or self._context.objective is not objective:
            self._context = RecordingContext.of(objective)

    def tried(
        self, objective: Objective, batch: Batch, product: Product, expect: int
    ) -> tuple[Product | None, str]:
        """A recording of the first batch and its product, or why none pays.

        Where the device is still busy with a product after it was launched, it never
        waited for long. Else what a replay saves, `expect` times, must be worth the
        recording.
        """
        vector = gaussian(objective.parameters, generator(0))
        plain = math.inf
        # Once more where they seem to show: the first time, algorithms are chosen and
        # memory is taken.
        for _ in range(2):
            started = _now()
            product(vector)
            launched = time.perf_counter()
            ended = _now()
            if ended - launched > BUSY * (launched - started):
                return None, "launches do not show: computing takes longer"
            plain = min(plain, ended - started)
        started = _now()
        recorded = self.prepare(objective, batch)
        made = _now()
        recorded(vector)
        saved, taken = (plain - (_now() - made)) * expect, made - started
        if not self.replays:
            return None, self.failure
        if saved < LEAST_WORTH * taken:
            saves = max(saved, 0.0)
            return None, f"it takes {taken:.2g} s, and would save {saves:.2g} s"
        return recorded, ""

    def prepare(self, objective: Objective, batch: Batch) -> Product:
        """Prepare and record on one stream, where autograd will differentiate again."""
        self.open(objective)
        context = self._context
        if context is None or not self.replays:
            return self.inner.prepare(objective, batch)
        torch.cuda.current_stream().synchronize()
        with torch.cuda.stream(context.stream):
            product = self.inner.prepare(objective, batch)
            context.stream.synchronize()
        try:
            return record(product, context).product
        except (RuntimeError, FlatgaugeError) as error:
            self.replays, self.failure = False, first_line(error)
            return product


def _now() -> float:
    """The time when all work on the device is done."""
    torch.cuda.current_stream().synchronize()
    return time.perf_counter()
