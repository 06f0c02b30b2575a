"""A product recorded as a CUDA graph: small networks spend their time launching kernels."""

from __future__ import annotations

import gc
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import torch

from flatgauge.curvature.agreement import check_product
from flatgauge.memory import cached_memory, free_memory
from flatgauge.objective import Objective
from flatgauge.vectors import Params, copied, copy_into, gaussian, generator, zeros_like

Stream = Graph = Any
"""`torch.cuda.Stream` and `torch.cuda.CUDAGraph`, for which tests have stand-ins."""

# Streams that no living context uses. torch keeps memory for each stream, so that a new one
# would have to be given all of it anew.
_idle: dict[torch.device, list[Stream]] = {}
# Refusing to wait is a switch of the whole process.
_one_at_a_time = threading.Lock()


@dataclass(frozen=True)
class RecordingContext:
    """What all recordings of one objective share, so that only one may run at a time.

    They are recorded on one stream and take their memory from one pool, read `vector`
    and write `image`. Their graphs go together: a graph that is given up takes along
    what cuBLAS keeps for its stream, which the others use.
    """

    objective: Objective
    stream: Stream
    pool: Any
    vector: Params
    image: Params
    graphs: list[Graph] = field(default_factory=list)

    @classmethod
    def of(cls, objective: Objective) -> RecordingContext:
        """A new one, on the objective's device, with a stream of its own."""
        device = objective.device
        idle = _idle.setdefault(device, [])
        stream = idle.pop() if idle else torch.cuda.Stream(device)
        context = cls(
            objective,
            stream,
            torch.cuda.graph_pool_handle(),
            zeros_like(objective.parameters),
            zeros_like(objective.parameters),
        )
        weakref.finalize(context, idle.append, stream).atexit = False
        return context


@dataclass(frozen=True)
class Recording:
    """A graph, and what was recorded, since the graph reads what that holds."""

    context: RecordingContext
    source: Callable[[Params], Params]
    graph: Graph

    def product(self, vector: Params) -> Params:
        """Copy the vector in, replay, and copy the image out."""
        copy_into(self.context.vector, vector)
        self.graph.replay()
        return copied(self.context.image)


def record(product: Callable[[Params], Params], context: RecordingContext) -> Recording:
    """Record a product whose own tensors live on the context's stream.

    Args:
        product: what to record; what it does once for all has been done before.
        context: what it shares with others.

    Raises:
        RuntimeError: if it waits for the device, or if a replay gives something else.
    """
    caller = torch.cuda.current_stream()
    probe = gaussian(context.vector, generator(0))
    context.stream.wait_stream(caller)
    with torch.cuda.stream(context.stream), _one_at_a_time:
        with _no_waiting():
            image = product(probe)
        graph = _capture(product, context)
    caller.wait_stream(context.stream)
    recording = Recording(context, product, graph)
    check_product(recording.product(probe), image, context.objective)
    return recording


def _capture(product: Callable[[Params], Params], context: RecordingContext) -> Graph:
    device = context.objective.device
    # What was used so far is not in the recordings' own pool. torch.cuda.graph would
    # always give it back, which takes longer than all the rest.
    if not context.graphs and cached_memory(device) > free_memory(device) / 2:
        torch.cuda.empty_cache()
    graph = torch.cuda.CUDAGraph()
    context.graphs.append(graph)
    with _no_garbage():
        # Not "global": other threads may go on with what a capture forbids.
        graph.capture_begin(pool=context.pool, capture_error_mode="thread_local")
        try:
            copy_into(context.image, product(context.vector))
        except BaseException:
            with suppress(RuntimeError):
                graph.capture_end()
            raise
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
