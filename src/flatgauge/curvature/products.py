"""Products with a curvature: batches outside, vectors inside.

One pass over the data serves all vectors. What a batch prepares (a graph that was
differentiated once, a recording) is kept for the next call while it fits in the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any, final

import torch
import torch.distributed as dist
from torch import Tensor

from flatgauge import deadline
from flatgauge.curvature.many import ManyAtOnce, ManyProducts
from flatgauge.curvature.operator import Product
from flatgauge.curvature.plan import Plan
from flatgauge.curvature.routes import Route
from flatgauge.curvature.samples import most_cuts, pieces
from flatgauge.data import Batch
from flatgauge.errors import OutOfMemoryError
from flatgauge.isolation import on_device
from flatgauge.memory import empty_cache, graph_room, in_words, kept_bytes
from flatgauge.vectors import (
    Params,
    add_into,
    derivative_errors,
    first_line,
    own_bytes,
    scale,
    size,
)

# Bytes of a graph that two vectors may go through at once: more do not fit in a cache.
AT_ONCE = 2**26
# Copies of the matrix itself that there must be room for.
COPIES = 3
# What the product of one batch gives, several vectors or one that stands for its matrix.
Images = Callable[[Any], list[Params]]


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
        space, device = plan.objective.parameters, plan.objective.device
        self._room = graph_room(device, budget, own_bytes(space))
        self._kept: list[tuple[Product, int]] = []
        self._full = False
        self._cuts = 1
        self._largest = 0

    @property
    def held(self) -> int:
        """The bytes of what is kept."""
        return sum(size for _, size in self._kept)

    @property
    def replays(self) -> bool:
        """Whether a product runs no code of the model, only recordings of it."""
        return self._complete and self.plan.replays

    @property
    def _complete(self) -> bool:
        return len(self._kept) == self.plan.objective.batch_count

    def __call__(self, vectors: list[Params]) -> list[Params]:
        """The products with several vectors, in one pass over the data."""
        return self._total(lambda product: self._images(product, vectors))

    def prepare(self) -> None:
        """Prepare the batches, and keep those that there is room for."""
        self._total(lambda product: [])

    def matrix(self) -> Tensor:
        """A itself."""
        return self._total(lambda product: [{"A": product.matrix()}])[0]["A"]

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
            if self._small and isinstance(first, ManyAtOnce):
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
        if self._small and len(vectors) > 1 and isinstance(product, ManyAtOnce):
            return product.many(vectors)
        return [product(vector) for vector in vectors]

    @property
    def _small(self) -> bool:
        """Whether calls cost more than what they compute."""
        return 2 * self._largest <= AT_ONCE

    def _each(self) -> Iterator[Product]:
        """The product of each piece of each batch."""
        kept = iter([product for product, _ in self._kept])
        if self._complete:
            yield from kept
            return
        for batch in self.plan.objective.batches():
            deadline.check()
            for piece in pieces(batch, self._cuts):
                yield next(kept, None) or self._made(piece)

    def _made(self, piece: Batch) -> Product:
        """The product of a piece, kept if there is room."""
        objective, route = self.plan.objective, self.plan.route_of(piece)
        if self._full and route.replays:
            # A recording that is not kept would be made again for every product.
            route = self.plan.truth
        product, size = self._prepared(route, piece)
        self._largest = max(self._largest, size)
        # Beside all but the last one there must be room for the work of another.
        last = len(self._kept) + 1 == objective.batch_count
        fits = self.held + size * (1 if last else 2) <= self._room
        keeps = route.keeps and fits and not self._full
        if objective.sharded:
            keeps = self._agreed(keeps)
        if keeps:
            self._kept.append((product, size))
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

    def _hold_less(self, reason: str) -> None:
        """Give up half of what is kept, or cut batches once more."""
        objective, self._full = self.plan.objective, True
        if self._kept:
            del self._kept[len(self._kept) // 2 :]
        elif self.plan.route.cuts and self._cuts < most_cuts(objective):
            self._cuts *= 2
        else:
            what = "a batch that cannot be cut" if self._cuts == 1 else "one sample"
            raise OutOfMemoryError(
                f"the {self.name} product of {what} does not fit beside parameters of "
                f"{in_words(objective.parameters)} ({reason}): use a device with more "
                "memory, smaller batches, or fewer parameters by params=."
            )
        empty_cache(objective.device)
