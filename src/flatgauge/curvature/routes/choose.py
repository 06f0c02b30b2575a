"""The choice of a route: right on the first batch, and then the fastest.

Double backward is the truth. A candidate stays if it agrees with it to rounding on one
random vector; among those that stay and fit in memory, the fastest is kept.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch

from flatgauge.curvature.routes.channels_last import ChannelsLast
from flatgauge.curvature.routes.cuda_graph import CudaGraph
from flatgauge.curvature.routes.double_backward import DoubleBackward
from flatgauge.curvature.routes.jvp_of_gradient import JvpOfGradient
from flatgauge.curvature.routes.reverse_over_forward import ReverseOverForward
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch, few_samples, tensors_in
from flatgauge.errors import FlatgaugeError
from flatgauge.memory import SavedBytes
from flatgauge.objective import Objective
from flatgauge.vectors import Params, add, gaussian, generator, norm

REPEATS = 3
CHECKED_SAMPLES = 16
# Relative differences that are rounding; the coarse one is for TF32.
AGREEMENT = {torch.float64: 1e-10, torch.float32: 1e-3}
COARSE_AGREEMENT = 3e-2
# Batches from which a trial on a CPU earns its own cost back.
WORTH_TRYING = 8


@dataclass(frozen=True)
class Choice:
    """The route that was chosen, and what was seen of every candidate.

    `seconds` holds the time of one product with the first batch, for the candidates
    that agreed and ran; `disagreement` the relative difference from double backward,
    infinite for those that failed.
    """

    route: Route
    seconds: dict[str, float] = field(default_factory=dict)
    disagreement: dict[str, float] = field(default_factory=dict)


def choose_route(objective: Objective, batch: Batch, budget: int) -> Choice:
    """Try the candidates on one batch.

    Args:
        objective: model, data, loss and the point.
        batch: its first batch.
        budget: bytes that the graphs of all batches may take together; if they fit,
            double backward need not prepare a batch again for each vector.
    """
    truth_route = DoubleBackward()
    if objective.device.type == "cpu" and objective.batch_count < WORTH_TRYING:
        return Choice(truth_route)
    vector = gaussian(objective.parameters, generator(0))
    # Agreement is checked on a few samples, where double backward always fits.
    few = few_samples(batch, CHECKED_SAMPLES)
    truth = truth_route.prepare(objective, few)([vector])[0]
    disagreement = {truth_route.name: 0.0}
    seconds = _attempt(objective, lambda: _time_truth(objective, batch, vector, budget))
    times = {truth_route.name: seconds}
    best: Route = truth_route
    for candidate in _candidates(objective, batch):

        def run(where: Batch, one: Route = candidate) -> Params:
            return one.prepare(objective, where)([vector])[0]

        error = _attempt(objective, lambda go=run: _difference(go(few), truth))
        disagreement[candidate.name] = error
        if error <= _rounding(objective):
            times[candidate.name] = _attempt(
                objective, lambda go=run: _time(objective, lambda: go(batch))
            )
            if times[candidate.name] < times[best.name]:
                best = candidate
    taken = {name: one for name, one in times.items() if math.isfinite(one)}
    return Choice(best, taken, disagreement)


def _attempt(objective: Objective, run: Callable[[], float]) -> float:
    """The result, or infinity where a route fails or does not fit in memory."""
    try:
        return run()
    except (RuntimeError, NotImplementedError, FlatgaugeError):
        return math.inf
    finally:
        if objective.device.type == "cuda":
            torch.cuda.empty_cache()


def _time_truth(
    objective: Objective, batch: Batch, vector: Params, budget: int
) -> float:
    """Double backward: with the graph kept if the graphs of all batches fit."""
    route = DoubleBackward()
    with SavedBytes() as saved:
        prepared = [route.prepare(objective, batch)]
    if saved.total * objective.batch_count <= budget:
        return _time(objective, lambda: prepared[0]([vector]))
    prepared.clear()
    return _time(objective, lambda: route.prepare(objective, batch)([vector]))


def _rounding(objective: Objective) -> float:
    """Relative differences that are rounding, for products of two routes."""
    if objective.precision == "tf32" and objective.device.type == "cuda":
        return COARSE_AGREEMENT
    return AGREEMENT[objective.dtype]


def _candidates(objective: Objective, batch: Batch) -> Iterator[Route]:
    on_gpu = objective.device.type == "cuda"
    images = any(tensor.ndim == 4 for tensor in tensors_in(batch.inputs))
    for build in (JvpOfGradient, ReverseOverForward):
        yield build()
        if on_gpu and images:
            yield ChannelsLast(build())
            yield CudaGraph(ChannelsLast(build()))
        if on_gpu:
            yield CudaGraph(build())
    if on_gpu:
        yield CudaGraph(DoubleBackward())


def _difference(image: Params, truth: Params) -> float:
    size = float(norm(truth))
    distance = float(norm(add(image, truth, -1.0)))
    if not distance < float("inf"):
        return float("inf")
    return distance / size if size > 0 else distance


def _time(objective: Objective, run: Callable[[], object]) -> float:
    """The shortest of a few runs, in seconds."""

    def once() -> float:
        started = time.perf_counter()
        run()
        if objective.device.type == "cuda":
            torch.cuda.synchronize(objective.device)
        return time.perf_counter() - started

    return min(once() for _ in range(REPEATS))
