"""A product recorded as a CUDA graph: small networks spend their time launching kernels."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from flatgauge.vectors import Params, copied, copy_into, zeros_like

WARM_UP = 2


@dataclass(frozen=True)
class Recording:
    """A graph, the vector that it reads, and the image that it writes.

    `source` is what was recorded: the graph reads what it holds.
    """

    source: Callable[[Params], Params]
    graph: torch.cuda.CUDAGraph
    vector: Params
    image: Params

    def product(self, vector: Params) -> Params:
        """Copy the vector in, replay, and copy the image out."""
        copy_into(self.vector, vector)
        self.graph.replay()
        return copied(self.image)


def record(
    product: Callable[[Params], Params],
    space: Params,
    stream: torch.cuda.Stream,
    pool: Any = None,
) -> Recording:
    """Record a product whose own tensors live on `stream`, warmed up before.

    Recordings of one pool share their memory, so only one may run at a time.
    """
    vector = zeros_like(space)
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UP):
            product(vector)
    graph = torch.cuda.CUDAGraph()
    # What the warm-up took is not in the recording's own pool.
    torch.cuda.empty_cache()
    with _no_garbage(), torch.cuda.graph(graph, pool=pool, stream=stream):
        image = product(vector)
    torch.cuda.current_stream().wait_stream(stream)
    return Recording(product, graph, vector, image)


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Freeing an old recording breaks a capture, so nothing is collected meanwhile."""
    collecting = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collecting:
            gc.enable()
