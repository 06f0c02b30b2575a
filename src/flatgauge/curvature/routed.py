"""Operators that can be multiplied by several routes, the fastest of which is chosen."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import torch

from flatgauge.curvature.batched import BatchedOperator
from flatgauge.curvature.choose import TRIALS, Choice, choose_route
from flatgauge.curvature.operator import BatchProduct
from flatgauge.curvature.routes import Route, resolve_route
from flatgauge.data import Batch
from flatgauge.objective import Objective
from flatgauge.vectors import Params

# About what one certified eigenvalue takes.
EXPECTED = 20


class RoutedOperator(BatchedOperator):
    """An operator whose batches are prepared by a route.

    A subclass sets `truth`, the name of the route that all others must agree with. With
    route="auto" it multiplies until a trial of the others pays for itself: the products
    that are expected to come, or as many again as there were, are worth its cost. Under
    `torch.use_deterministic_algorithms` there is no trial.
    """

    truth: str

    def __init__(
        self,
        objective: Objective,
        route: str | Route = "auto",
        *,
        expect: int = EXPECTED,
        memory_budget: int | None = None,
    ):
        super().__init__(objective, memory_budget=memory_budget)
        self.expect = expect
        # What is fastest differs from run to run, and with it the last digits.
        reproducible = torch.are_deterministic_algorithms_enabled()
        self._undecided = route == "auto" and not reproducible
        self._due = False
        self._seconds = math.inf
        first = self.truth if route == "auto" else route
        self._follow(Choice(resolve_route(first, self.name)))

    def _apply(self, vectors: list[Params]) -> list[Params]:
        started, first = time.perf_counter(), self._seconds == math.inf
        images = super()._apply(vectors)
        taken = (time.perf_counter() - started) / len(vectors)
        self._seconds = min(self._seconds, taken)
        # The first product also prepared what is kept.
        if self._undecided and not (first and self._kept) and self._pays():
            self._undecided, self._due, self._kept = False, True, None
        return images

    def _pays(self) -> bool:
        """Whether a trial earns its cost back; on a CPU a kept graph is hard to beat."""
        device = self.objective.device.type
        if device == "cpu" and self._kept is not None:
            return False
        trial = TRIALS.get(device, TRIALS["cuda"])
        remaining = max(self.expect - self.products, self.products)
        return trial.pays(remaining, self._seconds, self.objective.batch_count)

    def _begin(self, batch: Batch, count: int, budget: int) -> None:
        if self._due:
            self._due = False
            self._follow(choose_route(self.objective, batch, self.truth, budget, count))

    def _refuse_to_keep(self) -> None:
        if self.replays:
            # Recordings that are not kept would be made again for every product.
            truth = resolve_route(self.truth, self.name)
            self._follow(replace(self.choice, route=truth))

    def _follow(self, choice: Choice) -> None:
        self.choice = choice
        route = choice.route
        self.keeps, self.counts, self.replays = (
            route.keeps,
            route.counted,
            route.replays,
        )

    def _prepare(self, batch: Batch) -> BatchProduct:
        return self.choice.route.prepare(self.objective, batch)
