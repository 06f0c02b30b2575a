"""The choice of a route: right on the first batch, and then the fastest.

Double backward is the truth. A way to differentiate stays if it agrees with it in
float64 on a few samples and one random vector; among those that stay and fit in memory,
the fastest on the whole batch is kept, launched and laid out in the fastest way.
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
from flatgauge.data import Batch, few_samples, map_batch, tensors_in
from flatgauge.errors import FlatgaugeError
from flatgauge.memory import SavedBytes
from flatgauge.objective import Objective
from flatgauge.vectors import Params, add, gaussian, generator, norm

REPEATS = 3
CHECKED_SAMPLES = 16
# The relative difference of two products in float64 that is rounding.
AGREEMENT = 1e-9
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
    disagreement = {truth_route.name: 0.0}
    times = {
        truth_route.name: _attempt(
            objective, lambda: _time_truth(objective, batch, vector, budget)
        )
    }
    best: Route = truth_route
    for build in (JvpOfGradient, ReverseOverForward):
        wrong = _attempt(
            objective, lambda one=build: _disagreement(one(), objective, batch)
        )
        disagreement[build.name] = wrong
        if wrong > AGREEMENT:
            continue
        for candidate in _variants(build, objective, batch):
            times[candidate.name] = _attempt(
                objective,
                lambda one=candidate: _time_route(one, objective, batch, vector),
            )
            if times[candidate.name] < times[best.name]:
                best = candidate
    if objective.device.type == "cuda":
        recorded = CudaGraph(DoubleBackward())
        times[recorded.name] = _attempt(
            objective, lambda: _time_route(recorded, objective, batch, vector)
        )
        if times[recorded.name] < times[best.name]:
            best = recorded
    taken = {name: one for name, one in times.items() if math.isfinite(one)}
    return Choice(best, taken, disagreement)


def _variants(
    build: type[Route], objective: Objective, batch: Batch
) -> Iterator[Route]:
    """The same differentiation, launched and laid out in other ways."""
    yield build()
    if objective.device.type == "cuda":
        yield CudaGraph(build())
        if any(tensor.ndim == 4 for tensor in tensors_in(batch.inputs)):
            yield ChannelsLast(build())
            yield CudaGraph(ChannelsLast(build()))


def _disagreement(route: Route, objective: Objective, batch: Batch) -> float:
    """The relative difference from double backward on a few samples, in float64.

    In the working precision a wrong rule could hide behind rounding.
    """
    exact = objective.in_double()
    few = map_batch(lambda t: t.double() if t.is_floating_point() else t, batch)
    few = few_samples(few, CHECKED_SAMPLES)
    vector = gaussian(exact.parameters, generator(0))
    truth = DoubleBackward().prepare(exact, few)([vector])[0]
    return _difference(route.prepare(exact, few)([vector])[0], truth)


def _time_route(
    route: Route, objective: Objective, batch: Batch, vector: Params
) -> float:
    return _time(objective, lambda: route.prepare(objective, batch)([vector]))


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
