"""Products with a curvature: batches outside, vectors inside.

One pass over the data serves all vectors. What a batch prepares (a graph that was
differentiated once, a recording) is kept for the next call while it fits in the memory.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from flatgauge import deadline
from flatgauge.curvature.agreement import working_rounding
from flatgauge.curvature.gradient_graph import GradientGraph
from flatgauge.curvature.many import ManyProducts
from flatgauge.curvature.operator import Product, SymmetricOperator, rounding_of
from flatgauge.curvature.plan import EXPECTED, Plan, plan
from flatgauge.curvature.routes import Route, resolve_route
from flatgauge.curvature.samples import sample_length, take_samples
from flatgauge.data import Batch, samples_in
from flatgauge.errors import LossError, OptionError, OutOfMemoryError
from flatgauge.isolation import on_device
from flatgauge.memory import (
    KEPT_SHARE,
    empty_cache,
    in_words,
    kept_bytes,
    memory_budget,
)
from flatgauge.objective import Objective
from flatgauge.own_precision import own_precision
from flatgauge.vectors import (
    Params,
    add_into,
    derivative_errors,
    first_line,
    own_bytes,
    ravel,
    scale,
    size,
    unravel,
)

# What is lost of a product whose factors have 10 bits, as a share of the largest.
TF32 = 2**-10
# Bytes of a graph that two vectors may go through at once: more do not fit in a cache.
AT_ONCE = 2**26
# Copies of the matrix itself that there must be room for.
COPIES = 3
# The vectors that one product, or what stands for it, gives.
Images = Callable[[Product], list[Params]]


class CurvatureOperator(SymmetricOperator):
    """A = (1/N) Σ_batches A_b for N rows in all, multiplied as its plan says.

    A subclass sets `truth`, the name of the route that others must agree with, and says
    what the arguments are; with a `memory_budget` of 0 nothing is kept.
    """

    truth: str = ""

    def __init__(
        self,
        objective: Objective,
        route: str | Route = "auto",
        *,
        expect: int = EXPECTED,
        memory_budget: int | None = None,
    ):
        if objective.loss.rounding >= 1:
            raise LossError(
                f"the loss '{objective.loss.name}' loses all of its second derivatives to "
                f"rounding in {objective.dtype}: use a named loss or dtype=torch.float64."
            )
        if objective.sharded and self.truth != "double-backward":
            # Its batches do not say what they add to sums over processes.
            objective = objective.whole()
        if objective.sharded and route not in ("auto", "double-backward"):
            raise OptionError(
                f"the route '{getattr(route, 'name', route)}' needs whole parameters: use "
                "'auto', or pass objective.whole()."
            )
        self.objective = objective
        self.space = objective.parameters
        self.ranks = objective.ranks
        self.memory = objective.memory if memory_budget is None else memory_budget
        self.expect = expect
        self._given = None if route == "auto" else resolve_route(route, self.name)
        if self._given is not None:
            self._given.check(objective)
        self._plan: Plan | None = None
        self._products: Products | None = None
        self._takes_parts: bool | None = None
        self._matrix: Tensor | None = None

    @property
    def planned(self) -> Plan | None:
        """The plan, if there is one yet."""
        return self._plan

    @property
    def plan(self) -> Plan:
        """How the products are made: made once, before the first of them."""
        return self._plan or self._planned().plan

    @property
    def rounding(self) -> float:
        """That of the loss and of the network, too; TF32 keeps 10 bits of the factors."""
        objective = self.objective
        own = rounding_of(own_precision(objective))
        finest = max(super().rounding, objective.loss.rounding, own)
        coarse = objective.precision == "tf32" and objective.device.type == "cuda"
        if coarse and objective.dtype == torch.float32:
            return max(finest, TF32)
        return finest

    @property
    def takes_parts(self) -> bool:
        """Whether all routes do: a block costs less than the whole."""
        if self._takes_parts is None:
            own = self.plan.route.takes_parts and self.plan.truth.takes_parts
            self._takes_parts = bool(self.ranks.least(int(own)))
        return self._takes_parts

    def as_matrix(self, instead_of: int) -> Tensor | None:
        """A itself, if it takes less than so many products.

        Later products read it, where that takes less than they would.
        """
        if self._matrix is not None or not self._pays(instead_of):
            return self._matrix
        made = self._planned()
        keeps = self.ranks.least(int(self.ranks.together(made.reads)))
        matrix = made.matrix()
        self._products = None
        self.products += self.dimension
        if keeps:
            self._plan = replace(made.plan, reason="all of it is kept as a matrix")
            self._matrix = matrix
        return matrix

    def matrix_seconds(self, instead_of: int) -> float | None:
        """About what that will take; None where it is not made."""
        if self._matrix is not None:
            return 0.0
        if not self._pays(instead_of):
            return None
        return self.ranks.agreed(self.ranks.together(self._planned().matrix_seconds))

    def _pays(self, instead_of: int) -> bool:
        price = self.ranks.together(self._planned().price)
        return bool(self.ranks.least(int(price < instead_of)))

    def _apply(self, vectors: list[Params]) -> list[Params]:
        if self._matrix is None:
            return self._planned()(vectors)
        return [self._read(self._matrix, vector) for vector in vectors]

    def _read(self, matrix: Tensor, vector: Params) -> Params:
        zeros = {
            n: torch.zeros_like(t) for n, t in self.space.items() if n not in vector
        }
        whole = {name: {**vector, **zeros}[name] for name in self.space}
        image = unravel(matrix @ ravel(whole), self.space)
        return {name: image[name] for name in vector}

    def make_room(self) -> None:
        """Give up what is kept, if others could not keep as much beside it."""
        made = self._products
        if made is None or made.plan.replays:
            return
        room = KEPT_SHARE * memory_budget(self.objective.device, self.memory)
        if not self.ranks.least(int(made.held <= room)):
            self._products = None

    def _planned(self) -> Products:
        if self._products is None:
            budget = memory_budget(self.objective.device, self.memory)
            made = Products(self._plan or self._decided(budget), budget, self.name)
            self._plan, self._products = made.plan, made
        return self._products

    def _decided(self, budget: int) -> Plan:
        objective = self.objective
        if self._given is not None:
            return Plan(objective, self._given, self._given, "asked for")
        with derivative_errors(self.name):
            return self.ranks.together(
                lambda: plan(objective, self.truth, expect=self.expect, budget=budget)
            )


@final
class Products:
    """(1/N) Σ_batches A_b v, by a plan.

    The first prepared batches that fit in the room for graphs are kept. Where the device
    runs out of memory, half of them are given up, then all, then batches are cut into
    halves, quarters and so on, down to single samples, if the losses of all halves are
    found to add up.

    Args:
        plan: batches and routes.
        budget: bytes.
        name: of the operator, for errors.
    """

    def __init__(self, plan: Plan, budget: int, name: str):
        self._begun, self.plan = plan.begun, replace(plan, begun=None)
        self.name = name
        self._room = KEPT_SHARE * budget
        self._kept: dict[tuple[int, int], tuple[Product, int]] = {}
        self._complete = self._full = False
        self._cuts = 1
        self._largest = 0

    @property
    def held(self) -> int:
        """The bytes of what is kept."""
        return sum(size for _, size in self._kept.values())

    @property
    def replays(self) -> bool:
        """Whether a product runs no code of the model, only recordings of it."""
        return self._complete and self.plan.replays

    def __call__(self, vectors: list[Params]) -> list[Params]:
        """The products with several vectors, in one pass over the data."""
        return self._total(lambda product: self._images(product, vectors))

    def matrix(self) -> Tensor:
        """A itself."""

        def own(product: Any) -> list[Params]:
            return [{"A": product.matrix()}]

        return self._total(own)[0]["A"]

    def price(self) -> float:
        """What that costs, in single products; infinite where it cannot be done at once."""
        if not self.plan.objective.batch_count:
            return 0.0
        many = self._at_once()
        return math.inf if many is None else many.price()

    def reads(self) -> bool:
        """Whether a product with the matrix takes less than one with the batches."""
        many = self._at_once()
        return many is None or many.reads()

    def matrix_seconds(self) -> float:
        """What it costs, by a part of it on the first batch."""
        objective = self.plan.objective
        with objective.isolated():
            many = self._at_once()
            seconds = 0.0 if many is None else many.seconds
        return seconds * objective.sample_count / max(objective.batch_sizes[0], 1)

    def _at_once(self) -> ManyProducts | None:
        """The products of the first batch, if they can be done at once."""
        objective = self.plan.objective
        space = objective.parameters
        fits = COPIES * own_bytes(space) * size(space) <= self._room
        if objective.device.type != "cpu" or objective.sharded or not fits:
            return None
        # What does not fit says so when it is multiplied.
        with suppress(torch.OutOfMemoryError, OutOfMemoryError), objective.isolated():
            first = next(self._each(), None)
            if self._small and isinstance(first, GradientGraph):
                return first.at_once
        return None

    def _total(self, images: Images) -> list[Params]:
        return self.plan.objective.total(lambda: self._own(images))

    def _own(self, images: Images) -> list[Params]:
        """What the batches of this process add, however little memory there is."""
        while True:
            try:
                return self._mean(images)
            except (torch.OutOfMemoryError, OutOfMemoryError) as error:
                reason = first_line(error.__cause__ or error)
            # Outside of the handler, whose traceback holds on to what was computed.
            self._hold_less(reason)

    def _mean(self, images_of: Images) -> list[Params]:
        objective = self.plan.objective
        totals: list[Params] = []
        share = 1 / objective.sample_count
        # Replays run no code of the model, so there is nothing to be isolated from.
        with on_device(objective.device) if self.replays else objective.isolated():
            for product in self._each():
                with derivative_errors(self.name):
                    images = images_of(product)
                # Before the next batch is prepared.
                del product
                if not totals:
                    totals = [scale(image, share) for image in images]
                    continue
                for total, image in zip(totals, images, strict=True):
                    add_into(total, image, share)
        return totals

    def _images(self, product: Product, vectors: list[Params]) -> list[Params]:
        alike = all(one.keys() == vectors[0].keys() for one in vectors)
        several = self._small and len(vectors) > 1 and alike
        if several and isinstance(product, GradientGraph):
            return product.many(vectors)
        return [product(vector) for vector in vectors]

    @property
    def _small(self) -> bool:
        """Whether calls cost more than what they compute."""
        return 2 * self._largest <= AT_ONCE

    def _each(self) -> Iterator[Product]:
        """The product of each piece of each batch."""
        if self._complete:
            yield from (product for product, _ in self._kept.values())
            return
        for number, batch in enumerate(self.plan.objective.batches()):
            deadline.check()
            for place, piece in enumerate(self._pieces(batch)):
                key = (number, place)
                kept, _ = self._kept.get(key, (None, 0))
                yield kept or self._made(key, piece)
        self._complete = not self._full

    def _made(self, key: tuple[int, int], piece: Batch) -> Product:
        """The product of a piece, kept if there is room."""
        objective, route = self.plan.objective, self.plan.route_of(piece)
        if self._full and route.replays:
            # A recording that is not kept would be made again for every product.
            route = self.plan.truth
        product, size = self._prepared(route, piece)
        self._largest = max(self._largest, size)
        last = len(self._kept) + 1 == objective.batch_count * self._cuts
        # Beside all but the last one there must be room for the work of another.
        fits = self.held + size * (1 if last else 2) <= self._room
        if objective.sharded:
            fits = self._agreed(fits)
        if route.keeps and fits and not self._full:
            self._kept[key] = product, size
        else:
            self._full = True
        return product

    def _prepared(self, route: Route, piece: Batch) -> tuple[Product, int]:
        """The product of a piece, and its bytes; that of the first may be there."""
        objective, begun = self.plan.objective, self._begun
        self._begun = None
        if begun is not None:
            return begun
        route.open(objective)
        notes = objective.network.gathering
        with kept_bytes(objective.device, notes) as saved, derivative_errors(self.name):
            product = route.prepare(objective, piece)
        return product, saved.total

    def _agreed(self, fits: bool) -> bool:
        """Whether all processes say so: each runs what the others do."""
        objective = self.plan.objective
        all_say = torch.tensor(int(fits), device=objective.device)
        objective.ranks.exchange(
            "keep",
            lambda group: dist.all_reduce(all_say, dist.ReduceOp.MIN, group=group),
        )
        return bool(all_say)

    def _pieces(self, batch: Batch) -> Iterator[Batch]:
        if self._cuts == 1:
            yield batch
            return
        count = sample_length(batch)
        edges = [count * i // self._cuts for i in range(self._cuts + 1)]
        for start, end in itertools.pairwise(edges):
            if end > start:
                yield take_samples(batch, slice(start, end))

    def _hold_less(self, reason: str) -> None:
        """Give up half of what is kept, or cut batches once more."""
        objective = self.plan.objective
        self._complete, self._full = False, True
        if self._kept:
            for key in list(self._kept)[len(self._kept) // 2 :]:
                del self._kept[key]
        elif self._cuts < self._most_cuts():
            self._cuts *= 2
        else:
            what = "a batch that cannot be cut" if self._cuts == 1 else "one sample"
            raise OutOfMemoryError(
                f"the {self.name} product of {what} does not fit beside parameters of "
                f"{in_words(objective.parameters)} ({reason}): use a device with more "
                "memory, smaller batches, or fewer parameters by params=."
            )
        empty_cache(objective.device)

    def _most_cuts(self) -> int:
        """The samples of the largest batch; 1 where pieces would not be the same."""
        objective = self.plan.objective
        if objective.coupled or not self.plan.route.cuts:
            return 1
        most = 1
        with objective.isolated():
            for batch in objective.batches():
                if not _adds_up(objective, batch):
                    return 1
                most = max(most, sample_length(batch))
        return most


def _adds_up(objective: Objective, batch: Batch) -> bool:
    """Whether the losses of the halves of a batch are that of the whole."""
    length = samples_in(batch)
    if length is None:
        return False
    if length < 2:
        return length == 1
    halves = slice(0, length // 2), slice(length // 2, None)
    whole, one, other = (
        float(objective.batch_total(objective.parameters, part).detach())
        for part in (batch, *(take_samples(batch, half) for half in halves))
    )
    allowed = working_rounding(objective)
    return abs(one + other - whole) <= allowed * max(abs(one) + abs(other), abs(whole))
