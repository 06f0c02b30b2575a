"""The choice of a route: right on the first batch, and then the fastest.

One way to differentiate is the truth, and multiplies until a trial of the others pays.
Another stays if it agrees with the truth in float64 on a few samples; among those that
stay and fit in memory, the fastest on the whole batch is taken, launched and laid out in
the fastest way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flatgauge.curvature.routes import ROUTES, VARIANTS, Route
from flatgauge.curvature.routes.route import Variant
from flatgauge.curvature.tryout import Tryout
from flatgauge.data import Batch
from flatgauge.objective import Objective

# Seconds of a product from which the time of launching kernels no longer shows.
LAUNCHES_HIDDEN = 0.1
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
    way to differentiate that could be compared; `failures` the reason for all others.
    """

    route: Route
    seconds: dict[str, float] = field(default_factory=dict)
    disagreement: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: the name, and what was seen."""
        return {
            "route": self.route.name,
            "seconds": self.seconds,
            "disagreement": self.disagreement,
            "failures": self.failures,
        }


def choose_route(
    objective: Objective, batch: Batch, truth: str, budget: int, count: int = 1
) -> Choice:
    """Try the candidates on one batch.

    Args:
        objective: model, data, loss and the point.
        batch: its first batch.
        truth: the name of the route that the others must agree with.
        budget: bytes that must leave room beside what is kept for all batches.
        count: how many vectors come at a time.
    """
    count = min(count, MOST_VECTORS)
    tryout = Tryout(objective, batch, ROUTES[truth], budget, count)
    best: Build = ROUTES[truth]
    for differentiate in tryout.agreeing(_candidates(truth, count)):
        for build in _variants(differentiate, objective, batch):
            route = build()
            if _hides_launches(route, tryout.seconds):
                continue
            if tryout.is_fastest(route):
                best = build
    # Built anew: a trial's recordings hold memory.
    return Choice(best(), tryout.seconds, tryout.disagreements, tryout.failures)


def recorded_truth(truth: str, objective: Objective, batch: Batch) -> Route | None:
    """The truth's own product, recorded where it can be: that needs no trial.

    The recording sees to it itself that it is right, and that it pays.
    """
    inner = ROUTES[truth]()
    for variant in VARIANTS:
        if variant.replays and variant.suits(inner, objective, batch):
            route = variant(inner)
            route.hesitant = True
            return route
    return None


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
