"""Operators that can be multiplied by several routes, the fastest of which is chosen."""

from __future__ import annotations

import math
from dataclasses import replace

import torch

from flatgauge.curvature.agreement import check_product
from flatgauge.curvature.batched import BatchedOperator
from flatgauge.curvature.choose import (
    TRIALS,
    Choice,
    choose_route,
    recorded_truth,
)
from flatgauge.curvature.joining import joined
from flatgauge.curvature.operator import BatchProduct
from flatgauge.curvature.routes import ROUTES, Route, resolve_route
from flatgauge.curvature.routes.route import Variant
from flatgauge.curvature.stopwatch import Stopwatch
from flatgauge.curvature.tryout import FAILURES, in_words
from flatgauge.data import Batch
from flatgauge.noise import standard_normal
from flatgauge.objective import Objective
from flatgauge.vectors import Params, generator, unravel

# About what one certified eigenvalue takes.
EXPECTED = 20
# Products from which it pays to record one of a small network.
RECORDED_FROM = 10


class RoutedOperator(BatchedOperator):
    """An operator whose batches are prepared by a route.

    A subclass sets `truth`, the name of the route that all others must agree with. With
    route="auto" it multiplies, on GPUs by a recording where launches show and with small
    batches joined, until a trial of the others pays for itself: the products that are
    expected to come, or as many again as there were, are worth its cost. Under
    `torch.use_deterministic_algorithms` there is none of that.
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
        self._auto = route == "auto"
        self._undecided = self._auto and not reproducible
        self._due = self._begun = False
        self._agreed: set[int] = set()
        self._watch = Stopwatch(objective.device)
        first = self.truth if self._auto else route
        self._follow(Choice(resolve_route(first, self.name)))

    def _apply(self, vectors: list[Params]) -> list[Params]:
        if not self._undecided:
            return super()._apply(vectors)
        if not self._begun:
            self._join(self._budget())
        kept = self._kept
        self._watch.start()
        images = super()._apply(vectors)
        self._begun = True
        # A product that also prepared what is kept does not count.
        if self._kept is kept:
            self._watch.stop(len(vectors))
        if self._pays():
            self._undecided, self._due, self._kept = False, True, None
        return images

    def _join(self, budget: int) -> None:
        if self._may_record(budget):
            self._read = joined(self.objective, ROUTES[self.truth], budget)

    def _pays(self) -> bool:
        """Whether a trial earns its cost back; on a CPU a kept graph is hard to beat."""
        device = self.objective.device.type
        if device == "cpu" and self._kept is not None:
            return False
        seconds = self._watch.shortest
        if seconds == math.inf:
            return False
        trial = TRIALS.get(device, TRIALS["cuda"])
        remaining = max(self.expect - self.products, self.products)
        return trial.pays(remaining, seconds, self._read.batch_count)

    def _begin(self, batch: Batch, count: int, budget: int) -> None:
        if self._due:
            self._due = False
            self._follow(choose_route(self._read, batch, self.truth, budget, count))
        elif self._may_record(budget):
            recorded = recorded_truth(self.truth, self._read, batch)
            if recorded is not None:
                self._follow(Choice(recorded))
        self.choice.route.open(self._read)

    def _may_record(self, budget: int) -> bool:
        """Before the first product, if there are many to come and room for it."""
        first = self._undecided and not self._begun
        return first and self.expect >= RECORDED_FROM and budget > 0

    def _refuse_to_keep(self) -> None:
        if self.replays:
            # Recordings that are not kept would be made again for every product.
            self._return_to_truth("what it keeps of all batches leaves no room")

    def _return_to_truth(self, reason: str) -> None:
        truth = resolve_route(self.truth, self.name)
        failures = {**self.choice.failures, self.choice.route.name: reason}
        self._follow(replace(self.choice, route=truth, failures=failures))

    def _follow(self, choice: Choice) -> None:
        self.choice = choice
        route = choice.route
        self.keeps, self.counts, self.replays = (
            route.keeps,
            route.counted,
            route.replays,
        )

    def _prepare(self, batch: Batch) -> BatchProduct:
        route = self.choice.route
        if not self._auto or not (self.replays or self._differs_in_kind()):
            return route.prepare(self._read, batch)
        try:
            product = route.prepare(self._read, batch)
            if self._differs_in_kind() and batch.index not in self._agreed:
                self._check(product, batch)
                self._agreed.add(batch.index)
            return product
        except FAILURES as error:
            self._return_to_truth(in_words(error))
        return self.choice.route.prepare(self._read, batch)

    def _differs_in_kind(self) -> bool:
        """Whether the route differentiates in another way than the truth."""
        route = self.choice.route
        while isinstance(route, Variant):
            route = route.inner
        return route.name != self.truth

    def _check(self, product: BatchProduct, batch: Batch) -> None:
        """The product with all of a batch must be the truth's.

        The trial saw the first batch only; others may meet other operations.
        """
        first = next(iter(self.space.values()))
        random = generator(batch.index)
        vector = unravel(standard_normal(self.dimension, random, first), self.space)
        right = ROUTES[self.truth]().prepare(self._read, batch)([vector])[0]
        check_product(product([vector])[0], right, self.objective)
