"""The choice of a route: right on the first batch, and then the fastest.

One way to differentiate is the truth, and multiplies until a trial of the others pays.
Another stays if it agrees with the truth in float64 on a few samples and one random
vector; among those that stay and fit in memory, the fastest on the whole batch is taken,
launched and laid out in the fastest way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from flatgauge.curvature.routes import ROUTES, VARIANTS, Route
from flatgauge.curvature.routes.route import Variant
from flatgauge.data import Batch, few_samples, map_batch
from flatgauge.errors import FlatgaugeError
from flatgauge.memory import SavedBytes
from flatgauge.objective import Objective
from flatgauge.vectors import (
    Params,
    add,
    gaussian,
    generator,
    norm,
)

REPEATS = 3
# A candidate this much slower than the best at its first run is not run again.
HOPELESS = 2.0
# Seconds of a product from which the time of launching kernels no longer shows.
LAUNCHES_HIDDEN = 0.1
CHECKED_SAMPLES = 16
# The relative difference of two products in float64 that is rounding.
AGREEMENT = 1e-9
# More vectors at a time than this take no longer each.
MOST_VECTORS = 8

Build = Callable[[], Route]


@dataclass(frozen=True)
class Trial:
    """What a trial costs and saves: seconds, products of one batch, a share of the time.

    Rounded from what was measured: see the benchmarks.
    """

    seconds: float
    products: float
    saved: float

    def pays(self, remaining: int, seconds: float, batches: int) -> bool:
        """Whether it earns its cost back over the products that remain.

        Args:
            remaining: the products that are expected to come.
            seconds: what one takes now, over all batches.
            batches: how many there are.
        """
        cost = self.seconds + self.products * seconds / batches
        return remaining * seconds * self.saved > cost


TRIALS = {"cuda": Trial(1.0, 20.0, 0.5), "cpu": Trial(2.0, 12.0, 0.15)}


@dataclass(frozen=True)
class Choice:
    """The route that was chosen, and what was seen of every candidate.

    `seconds` holds the time of one product with the first batch, for the candidates
    that agreed and ran; `disagreement` the relative difference from the truth of every
    way to differentiate, infinite for those that failed.
    """

    route: Route
    seconds: dict[str, float] = field(default_factory=dict)
    disagreement: dict[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the name, and what was seen."""
        return {
            "route": self.route.name,
            "seconds": self.seconds,
            "disagreement": self.disagreement,
        }


def choose_route(
    objective: Objective, batch: Batch, truth: str, budget: int, count: int = 1
) -> Choice:
    """Try the candidates on one batch.

    Args:
        objective: model, data, loss and the point.
        batch: its first batch.
        truth: the name of the route that the others must agree with.
        budget: bytes that what is kept for all batches may take together.
        count: how many vectors come at a time.
    """
    count = min(count, MOST_VECTORS)
    vectors = [gaussian(objective.parameters, generator(seed)) for seed in range(count)]
    disagreement = {truth: 0.0}
    seconds: dict[str, float] = {}
    best: Build = ROUTES[truth]
    fastest = math.inf
    for differentiate in _candidates(truth, count):
        if differentiate.name != truth:
            wrong = _attempt(
                objective,
                lambda one=differentiate: _disagreement(one(), truth, objective, batch),
            )
            disagreement[differentiate.name] = wrong
            if wrong > AGREEMENT:
                continue
        for build in _variants(differentiate, objective, batch):
            route = build()
            if _hides_launches(route, seconds):
                continue
            taken = _attempt(
                objective,
                lambda one=build, limit=fastest: _time_route(
                    one(), objective, batch, vectors, budget, limit
                ),
            )
            if math.isfinite(taken):
                seconds[route.name] = taken
            if taken < fastest:
                best, fastest = build, taken
    # Built anew: a trial's recordings hold memory.
    return Choice(best(), seconds, disagreement)


def _candidates(truth: str, count: int) -> list[type[Route]]:
    """The truth, and every route to the same matrix that is worth a look."""
    others = [
        route
        for route in ROUTES.values()
        if route.matrix == ROUTES[truth].matrix
        and route.name != truth
        and route.tried
        and route.fewest <= count
    ]
    return [ROUTES[truth], *others]


def _variants(
    differentiate: type[Route], objective: Objective, batch: Batch
) -> list[Build]:
    """The same differentiation, launched and laid out in other ways."""
    found: list[Build] = [differentiate]
    for variant in VARIANTS:
        found += [
            lambda wrap=variant, inner=build: wrap(inner())
            for build in found
            if variant.suits(build(), objective, batch)
        ]
    return found


def _hides_launches(route: Route, seconds: dict[str, float]) -> bool:
    """Whether only launches would differ from a route that was too slow for them."""
    if not (isinstance(route, Variant) and route.launches):
        return False
    return seconds.get(route.inner.name, 0.0) > LAUNCHES_HIDDEN


def _disagreement(
    route: Route, truth: str, objective: Objective, batch: Batch
) -> float:
    """The relative difference from the truth on a few samples, in float64.

    In the working precision a wrong rule could hide behind rounding.
    """
    exact = objective.in_double()
    few = map_batch(lambda t: t.double() if t.is_floating_point() else t, batch)
    few = few_samples(few, CHECKED_SAMPLES)
    vector = gaussian(exact.parameters, generator(0))
    right = ROUTES[truth]().prepare(exact, few)([vector])[0]
    found = route.prepare(exact, few)([vector])[0]
    distance, size = float(norm(add(found, right, -1.0))), float(norm(right))
    if not math.isfinite(distance):
        return math.inf
    return distance / size if size > 0 else distance


def _attempt(objective: Objective, run: Callable[[], float]) -> float:
    """The result, or infinity where a route fails or does not fit in memory."""
    try:
        return run()
    except (RuntimeError, NotImplementedError, FlatgaugeError):
        return math.inf
    finally:
        if objective.device.type == "cuda":
            torch.cuda.empty_cache()


def _time_route(
    route: Route,
    objective: Objective,
    batch: Batch,
    vectors: list[Params],
    budget: int,
    limit: float,
) -> float:
    """Seconds of one product: of a kept batch, if those of all batches fit."""
    if route.keeps:
        with SavedBytes() as saved:
            prepared = [route.prepare(objective, batch)]
        if saved.total * objective.batch_count <= budget:
            return _time(objective, lambda: prepared[0](vectors), limit) / len(vectors)
        if route.replays:
            return math.inf
        prepared.clear()
    return _time(
        objective, lambda: route.prepare(objective, batch)(vectors), limit
    ) / len(vectors)


def _time(objective: Objective, run: Callable[[], object], limit: float) -> float:
    """The shortest of a few runs, in seconds, after one that does not count."""

    def once() -> float:
        started = time.perf_counter()
        run()
        if objective.device.type == "cuda":
            torch.cuda.synchronize(objective.device)
        return time.perf_counter() - started

    once()
    shortest = once()
    if shortest > HOPELESS * limit:
        return shortest
    return min(shortest, *(once() for _ in range(REPEATS - 1)))
