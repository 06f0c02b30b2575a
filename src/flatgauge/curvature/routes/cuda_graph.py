"""Another route, recorded once as a CUDA graph and replayed for every vector."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch, map_batch, tensors_in
from flatgauge.objective import Objective
from flatgauge.vectors import Params

WARM_UP = 3


@dataclass(frozen=True)
class _Recording:
    """A graph, and the tensors that it reads and writes."""

    graph: torch.cuda.CUDAGraph
    batch: Batch
    vector: Params
    image: Params


class CudaGraph(Route):
    """Small networks spend their time launching kernels; a replay launches them all.

    One recording serves all batches of the same shapes, which are copied into it.
    """

    keeps = False

    def __init__(self, inner: Route):
        self.inner = inner
        self.name = f"{inner.name}, CUDA graph"
        self._recordings: dict[tuple[torch.Size, ...], _Recording] = {}

    def prepare(
        self, objective: Objective, batch: Batch
    ) -> Callable[[list[Params]], list[Params]]:
        """Record for new shapes, else copy the batch into the recording."""
        tensors = _tensors(batch)
        shapes = tuple(tensor.shape for tensor in tensors)
        if shapes not in self._recordings:
            self._recordings[shapes] = self._record(objective, batch)
        recording = self._recordings[shapes]
        for mine, theirs in zip(_tensors(recording.batch), tensors, strict=True):
            mine.copy_(theirs)

        def product(vector: Params) -> Params:
            for name, tensor in recording.vector.items():
                tensor.copy_(vector[name])
            recording.graph.replay()
            return {name: tensor.clone() for name, tensor in recording.image.items()}

        return lambda vectors: [product(vector) for vector in vectors]

    def _record(self, objective: Objective, batch: Batch) -> _Recording:
        own = map_batch(torch.clone, batch)
        vector = {name: torch.zeros_like(t) for name, t in objective.parameters.items()}

        def run() -> Params:
            return self.inner.prepare(objective, own)([vector])[0]

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(WARM_UP):
                run()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            image = run()
        return _Recording(graph, own, vector, image)


def _tensors(batch: Batch) -> list[Tensor]:
    return tensors_in([batch.whole, batch.inputs, batch.targets])
