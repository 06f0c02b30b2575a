"""How the products of an operator are made: decided once, before the first of them.

One way to differentiate is the truth. On a CPU it is taken as it is. On a GPU small
batches are joined and the truth's products recorded where launches show; where they do
not, other ways are timed on the first batch. Another way is taken only for batches on
which it agrees with the truth, and which meet no operation that was not compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from flatgauge.curvature.agreement import SAME_PRODUCT, difference
from flatgauge.curvature.joining import bytes_of_batch, joined
from flatgauge.curvature.operator import Product
from flatgauge.curvature.routes import RIVALS, ROUTES, Route
from flatgauge.curvature.routes.channels_last import ChannelsLast
from flatgauge.curvature.routes.kept_cuda_graph import KeptCudaGraph
from flatgauge.curvature.samples import double
from flatgauge.data import Batch, few_samples, map_batch
from flatgauge.errors import FlatgaugeError, OutOfMemoryError
from flatgauge.memory import empty_cache, graph_room, kept_bytes
from flatgauge.objective import Objective
from flatgauge.vectors import first_line, gaussian, generator, own_bytes

EXPECTED = 20
"""About what one certified eigenvalue takes."""
# Products from which it pays to look for something faster, which takes about two.
SOUGHT_FROM = 8
CHECKED_SAMPLES = 4
# Vectors and graphs that it takes to compare two products.
COMPARED_VECTORS, COMPARED_GRAPHS = 8, 3
NO_ROOM = "there is no room to keep it on a GPU"
# A candidate this much slower than the best at its first run is not run again.
HOPELESS = 1.5
FAILURES = (RuntimeError, FlatgaugeError)


@dataclass(frozen=True)
class Plan:
    """Batches and routes.

    Attributes:
        objective: the same as the operator's, in the batches that are read.
        route: how they are multiplied.
        truth: how the `exceptions` are, where `route` was not shown to be right.
        reason: why, in words.
        exceptions: the numbers of batches.
        seconds: what one product with the first batch took, by candidate.
        disagreement: its relative difference from the truth, in float64.
        failures: why others were not taken.
        begun: the first batch, prepared already, and its bytes.
    """

    objective: Objective
    route: Route
    truth: Route
    reason: str
    exceptions: tuple[int, ...] = ()
    seconds: dict[str, float] = field(default_factory=dict)
    disagreement: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)
    begun: tuple[Product, int] | None = None

    def route_of(self, batch: Batch) -> Route:
        """The one that a batch goes by."""
        return self.truth if batch.index in self.exceptions else self.route

    @property
    def replays(self) -> bool:
        """Whether all batches go by recordings."""
        return self.route.replays and not self.exceptions

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        failures = dict(self.failures)
        if self.route.failure:
            failures[self.route.name] = self.route.failure
        return {
            "route": self.route.name,
            "reason": self.reason,
            "exceptions": list(self.exceptions),
            "seconds": self.seconds,
            "disagreement": self.disagreement,
            "failures": failures,
        }


def plan(objective: Objective, truth: str, *, expect: int, budget: int) -> Plan:
    """Decide how about `expect` products of an objective are made, in `budget` bytes."""
    right = ROUTES[truth]()
    reason = _settled(objective, expect)
    if not reason:
        with suppress(torch.OutOfMemoryError, OutOfMemoryError):
            return _sought(objective, right, expect, budget)
        # Outside of the context, whose traceback holds on to what was computed.
        empty_cache(objective.device)
        reason = "the first batch does not fit, so that nothing was tried"
    return Plan(objective, right, right, reason)


def _settled(objective: Objective, expect: int) -> str:
    """Why the truth is taken without a look at others; "" if they are worth one."""
    if torch.are_deterministic_algorithms_enabled():
        # What is fastest differs from run to run, and with it the last digits.
        return "deterministic algorithms were asked for"
    if objective.sharded:
        return "the only one for sharded parameters"
    if not pays(objective.device):
        return "nothing was found to be faster on a CPU"
    if not objective.batch_count:
        return "this process has no batches"
    return "for few products" if expect < SOUGHT_FROM else ""


def _sought(objective: Objective, right: Route, expect: int, budget: int) -> Plan:
    """What pays on a GPU."""
    with objective.isolated():
        recorded = KeptCudaGraph(right)
        if budget > 0:
            objective = joined(objective, right, budget)
        first = next(objective.batches())
        with kept_bytes(objective.device) as saved:
            product = right.prepare(objective, first)
        others = saved.total * (objective.batch_count - 1)
        everything = saved.total + others
        vector = own_bytes(objective.parameters)
        room = graph_room(objective.device, budget, vector)
        recording, declined = None, ""
        if everything <= room and objective.device.type == "cuda":
            with kept_bytes(objective.device) as recorded_bytes:
                recording, declined = recorded.tried(objective, first, product, expect)
            # Recordings share what they work with; beside them another is made.
            needed = recorded_bytes.total * min(2, objective.batch_count) + others
            if recording is not None and needed <= room:
                begun = recording, recorded_bytes.total
                return Plan(objective, recorded, right, "launches show", begun=begun)
        failures = {recorded.name: declined or NO_ROOM}
        if right.keeps and everything <= room:
            reason = "what is kept of each batch leaves least to do"
            begun = product, saved.total
            return Plan(objective, right, right, reason, failures=failures, begun=begun)
        # What was recorded, and the vectors of its context, which nothing reads any more.
        del product, recorded, recording
        if _comparing(objective, first, saved.total) > budget:
            declined = "there is no room to compare others with it in float64"
            failures |= dict.fromkeys(RIVALS[right.name], declined)
            return Plan(
                objective, right, right, "nothing else has room", failures=failures
            )
        return _fastest(objective, first, right, failures)


def _comparing(objective: Objective, first: Batch, held: int) -> float:
    """About the bytes of a comparison in float64, where a product's graph holds so many."""
    few = few_samples(first, CHECKED_SAMPLES)
    share = bytes_of_batch(few) / max(bytes_of_batch(first), 1)
    wider = torch.float64.itemsize / objective.dtype.itemsize
    vectors = COMPARED_VECTORS * own_bytes(objective.parameters)
    return wider * (vectors + COMPARED_GRAPHS * share * held)


def pays(device: torch.device) -> bool:
    """Whether another route was ever faster; a test pretends that it is."""
    return device.type == "cuda"


def _fastest(
    objective: Objective, first: Batch, right: Route, failures: dict[str, str]
) -> Plan:
    """The fastest on the first batch of those that agree there."""
    exact = objective.in_double()
    rivals: list[Route] = [ROUTES[name]() for name in RIVALS[right.name]]
    if ChannelsLast.suits(objective, first):
        rivals = [one for rival in rivals for one in (rival, ChannelsLast(rival))]
    seconds: dict[str, float] = {}
    disagreement: dict[str, float] = {}
    found: dict[str, Route] = {}
    for route in (right, *rivals):
        try:
            if route is not right:
                wrong = _disagreement(route, right, exact, first)
                disagreement[route.name] = wrong
                if wrong > SAME_PRODUCT:
                    continue
            fastest = min(seconds.values(), default=math.inf)
            seconds[route.name] = _seconds(route, objective, first, fastest)
            found[route.name] = route
        except FAILURES as error:
            failures[route.name] = first_line(error)
    name = min(seconds, key=lambda one: seconds[one], default=right.name)
    seen = {"seconds": seconds, "disagreement": disagreement, "failures": failures}
    if name == right.name:
        return Plan(objective, right, right, "the fastest on the first batch", **seen)
    exceptions = tuple(_not_shown_right(found[name], right, objective, exact))
    return Plan(
        objective,
        found[name],
        right,
        "the fastest on the first batch, and right on samples of all the others",
        exceptions,
        **seen,
    )


def _seconds(route: Route, objective: Objective, batch: Batch, best: float) -> float:
    """Of one product without anything kept: the second, unless the first was hopeless.

    The first chooses algorithms and takes memory.
    """
    vector = gaussian(objective.parameters, generator(0))

    def now() -> float:
        if objective.device.type == "cuda":
            torch.cuda.synchronize(objective.device)
        return time.perf_counter()

    def once() -> float:
        started = now()
        route.prepare(objective, batch)(vector)
        return now() - started

    first = once()
    return first if first > HOPELESS * best else once()


def _disagreement(route: Route, truth: Route, exact: Objective, batch: Batch) -> float:
    """The relative difference of two products on a few samples, in float64.

    In the working precision a wrong rule could hide behind rounding.
    """
    few = map_batch(double, few_samples(batch, CHECKED_SAMPLES))
    vector = gaussian(exact.parameters, generator(batch.index))
    products = [one.prepare(exact, few)(vector) for one in (route, truth)]
    return difference(*products)


def _not_shown_right(
    route: Route, truth: Route, objective: Objective, exact: Objective
) -> Iterator[int]:
    """The batches on whose samples it is wrong, or with other operations than those."""
    for batch in objective.batches():
        few = few_samples(batch, CHECKED_SAMPLES)
        try:
            compared = operations(objective, few)
            wrong = _disagreement(route, truth, exact, batch)
            if wrong > SAME_PRODUCT or operations(objective, batch) - compared:
                yield batch.index
        except FAILURES:
            yield batch.index


def operations(objective: Objective, batch: Batch) -> set[str]:
    """The names of what torch computes for the loss of a batch."""
    with _Names() as seen:
        objective.batch_total(objective.parameters, batch)
    return seen.names


class _Names(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ):
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))
