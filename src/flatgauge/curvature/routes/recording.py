"""A product recorded as a CUDA graph: small networks spend their time launching kernels."""

from __future__ import annotations

import gc
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from flatgauge.curvature.agreement import check_agreement
from flatgauge.memory import cached_memory, free_memory
from flatgauge.objective import Objective
from flatgauge.vectors import Params, copied, copy_into, zeros_like


@dataclass(frozen=True)
class Desk:
    """What all recordings of one objective share, so that only one may run at a time.

    They are recorded on one stream and take their memory from one pool, read `vector`
    and write `image`.
    """

    objective: Objective
    stream: torch.cuda.Stream
    pool: Any
    vector: Params
    image: Params

    @classmethod
    def of(cls, objective: Objective) -> Desk:
        """A new one, on the objective's device; the first vector is the point itself."""
        return cls(
            objective,
            _stream(objective.device),
            torch.cuda.graph_pool_handle(),
            copied(objective.parameters),
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


def record(
    product: Callable[[Params], Params], desk: Desk, *, warmed: bool = False
) -> Recording:
    """Record a product whose own tensors live on the desk's stream.

    Args:
        product: what to record.
        desk: what it shares with others.
        warmed: whether all that it does once for all has been done before.

    Raises:
        RuntimeError: if it waits for the device, or if a replay gives something else.
    """
    caller = torch.cuda.current_stream()
    # A capture that fails leaves its own stream as the current one.
    with torch.cuda.stream(caller):
        desk.stream.wait_stream(caller)
        with torch.cuda.stream(desk.stream):
            if not warmed:
                product(desk.vector)
            with _no_waiting():
                image = product(desk.vector)
            graph = _capture(product, desk)
        caller.wait_stream(desk.stream)
        graph.replay()
        check_agreement(desk.image, image, desk.objective)
    return Recording(desk, product, graph)


_own = threading.local()


def _stream(device: torch.device) -> torch.cuda.Stream:
    """The stream on which this thread records; torch keeps memory for each stream."""
    streams = vars(_own).setdefault("streams", {})
    if device not in streams:
        streams[device] = torch.cuda.Stream(device)
    return streams[device]


def _capture(product: Callable[[Params], Params], desk: Desk) -> torch.cuda.CUDAGraph:
    device = desk.objective.device
    # What was used so far is not in the recordings' own pool. torch.cuda.graph would
    # always give it back, which takes longer than all the rest.
    if cached_memory(device) > free_memory(device) / 2:
        torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    with _no_garbage():
        # Not "global": other threads may go on with what a capture forbids.
        graph.capture_begin(pool=desk.pool, capture_error_mode="thread_local")
        try:
            copy_into(desk.image, product(desk.vector))
        finally:
            graph.capture_end()
    return graph


@contextmanager
def _no_waiting() -> Iterator[None]:
    """Refuse code that waits: torch does not clean up after a capture that fails."""
    mode = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # That the mode does not see everything.
        warnings.simplefilter("ignore")
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
