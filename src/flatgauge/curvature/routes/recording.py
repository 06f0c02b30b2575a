"""A product recorded as a CUDA graph: small networks spend their time launching kernels."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from flatgauge.objective import Objective
from flatgauge.vectors import Params, copied, copy_into, zeros_like


@dataclass(frozen=True)
class Desk:
    """What all recordings of one objective share, so that only one may run at a time.

    They run on one stream and take their memory from one pool, read `vector` and write
    `image`.
    """

    objective: Objective
    stream: torch.cuda.Stream
    pool: Any
    vector: Params
    image: Params

    @classmethod
    def of(cls, objective: Objective) -> Desk:
        """A new one, on the objective's device."""
        return cls(
            objective,
            torch.cuda.Stream(objective.device),
            torch.cuda.graph_pool_handle(),
            zeros_like(objective.parameters),
            zeros_like(objective.parameters),
        )


@dataclass(frozen=True)
class Recording:
    """A graph, and what was recorded, since the graph reads what that holds."""

    desk: Desk
    source: Callable[[Params], Params]
    graph: torch.cuda.CUDAGraph

    def product(self, vector: Params) -> Params:
        """Copy the vector in, replay, and copy the image out."""
        copy_into(self.desk.vector, vector)
        self.graph.replay()
        return copied(self.desk.image)


def record(product: Callable[[Params], Params], desk: Desk) -> Recording:
    """Record a product whose own tensors live on the desk's stream, warmed up before."""
    caller = torch.cuda.current_stream()
    # A capture that fails leaves its own stream as the current one.
    with torch.cuda.stream(caller):
        desk.stream.wait_stream(caller)
        with torch.cuda.stream(desk.stream):
            product(desk.vector)
            with _no_waiting():
                product(desk.vector)
        graph = torch.cuda.CUDAGraph()
        # What the warm-up took is not in the recordings' own pool.
        torch.cuda.empty_cache()
        # Not "global": other threads may go on with what a capture forbids.
        capture = torch.cuda.graph(
            graph,
            pool=desk.pool,
            stream=desk.stream,
            capture_error_mode="thread_local",
        )
        with _no_garbage(), capture:
            copy_into(desk.image, product(desk.vector))
        caller.wait_stream(desk.stream)
    return Recording(desk, product, graph)


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Refuse code that waits: torch does not clean up after a capture that fails."""
    mode = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(mode)


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
