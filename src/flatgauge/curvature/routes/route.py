"""A route: one way to multiply vectors by the Hessian of one batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from flatgauge.data import Batch
from flatgauge.objective import Objective
from flatgauge.vectors import Params


class Route(ABC):
    """Prepares the products ∇²(Σ_rows ℓ) v of one batch.

    `name` is what users ask for; `keeps` says whether a prepared batch is worth keeping
    for later vectors.
    """

    name: str
    keeps: bool

    @abstractmethod
    def prepare(
        self, objective: Objective, batch: Batch
    ) -> Callable[[list[Params]], list[Params]]:
        """The map from vectors to their products, for the sum over the batch."""
