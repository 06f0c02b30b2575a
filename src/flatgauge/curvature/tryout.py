"""The trial of routes on one batch: are they right, do they fit, and how long they take."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

import torch

from flatgauge.curvature.agreement import AGREEMENT, check_product, difference
from flatgauge.curvature.operator import BatchProduct
from flatgauge.curvature.routes import Route
from flatgauge.curvature.samples import double
from flatgauge.data import Batch, few_samples, map_batch
from flatgauge.errors import FlatgaugeError
from flatgauge.memory import can_be_kept, kept_bytes
from flatgauge.objective import Objective
from flatgauge.vectors import Params, gaussian, generator

T = TypeVar("T")
FAILURES = (RuntimeError, FlatgaugeError)
REPEATS = 3
# A candidate this much slower than the best at its first run is not run again.
HOPELESS = 2.0
CHECKED_SAMPLES = 16
# One alone could hide a wrong layout of several.
CHECKED_VECTORS = 2


class Tryout:
    """What was seen of the routes so far.

    Args:
        objective: model, data, loss and the point.
        batch: its first batch.
        truth: the route that the others must agree with.
        budget: bytes that must leave room beside what is kept for all batches.
        count: how many vectors come at a time.
    """

    def __init__(
        self,
        objective: Objective,
        batch: Batch,
        truth: type[Route],
        budget: int,
        count: int,
    ):
        self.objective = objective
        self.batch = batch
        self.truth = truth
        self.budget = budget
        self.vectors = _draw(objective, count)
        self.seconds: dict[str, float] = {}
        self.disagreements: dict[str, float] = {}
        self.failures: dict[str, str] = {}
        self._fastest = math.inf
        self._image: Params | None = None

    def agreeing(self, candidates: list[type[Route]]) -> list[type[Route]]:
        """Those whose products are the truth's on a few samples, in float64.

        In the working precision a wrong rule could hide behind rounding.
        """
        truth = self.truth()
        right = self._attempt(truth, lambda: self._in_double(truth))
        if right is None:
            return [self.truth]
        for candidate in candidates:
            route = candidate()
            found = self._attempt(route, lambda one=route: self._in_double(one))
            if found is not None:
                pairs = zip(found, right, strict=True)
                wrong = max(difference(one, other) for one, other in pairs)
                self.disagreements[route.name] = wrong
        allowed = [n for n, wrong in self.disagreements.items() if wrong <= AGREEMENT]
        return [one for one in candidates if one.name in allowed]

    def is_fastest(self, route: Route) -> bool:
        """Time a route; whether it is right, fits in memory, and beats all before."""
        taken = self._attempt(route, lambda: self._time(route))
        if taken is None:
            return False
        self.seconds[route.name] = taken
        if taken >= self._fastest:
            return False
        self._fastest = taken
        return True

    def _in_double(self, route: Route) -> list[Params]:
        exact = self.objective.in_double()
        few = map_batch(double, few_samples(self.batch, CHECKED_SAMPLES))
        return route.prepare(exact, few)(_draw(exact, CHECKED_VECTORS))

    def _attempt(self, route: Route, run: Callable[[], T]) -> T | None:
        """The result, or None and a note where a route fails or does not fit."""
        try:
            return run()
        except FAILURES as error:
            self.failures[route.name] = in_words(error)
            return None
        finally:
            if self.objective.device.type == "cuda":
                # Refused after some failures; then there is nothing to be gained.
                with suppress(RuntimeError):
                    torch.cuda.empty_cache()

    def _time(self, route: Route) -> float:
        """Seconds of one product: of a kept batch, if those of all batches fit."""
        product = self._product(route)

        def once() -> float:
            started = time.perf_counter()
            product(self.vectors)
            if self.objective.device.type == "cuda":
                torch.cuda.synchronize(self.objective.device)
            return (time.perf_counter() - started) / len(self.vectors)

        self._check(product(self.vectors)[0])
        shortest = once()
        if shortest > HOPELESS * self._fastest:
            return shortest
        return min(shortest, *(once() for _ in range(REPEATS - 1)))

    def _product(self, route: Route) -> BatchProduct:
        def anew(vectors: list[Params]) -> list[Params]:
            return route.prepare(self.objective, self.batch)(vectors)

        if not route.keeps:
            return anew
        with kept_bytes(self.objective.device) as saved:
            kept = route.prepare(self.objective, self.batch)
        if can_be_kept(saved.total * self.objective.batch_count, self.budget):
            return kept
        if route.replays:
            raise RuntimeError("what it keeps of all batches leaves no room")
        return anew

    def _check(self, image: Params) -> None:
        """A route's own product must be the truth's: a recording can go wrong, too."""
        if self._image is None:
            self._image = image
            return
        check_product(image, self._image, self.objective)


def in_words(error: Exception) -> str:
    """The first line of what a route failed with."""
    first = next(iter(str(error).strip().splitlines()), "")
    return f"{type(error).__name__}: {first}"


def _draw(objective: Objective, count: int) -> list[Params]:
    return [gaussian(objective.parameters, generator(seed)) for seed in range(count)]
