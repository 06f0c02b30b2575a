"""A route: one way to multiply vectors by the curvature of one batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from flatgauge.curvature.operator import Product
from flatgauge.data import Batch
from flatgauge.objective import Objective


class Route(ABC):
    """Prepares the products A_b v of one batch, for the sum over its rows.

    Attributes:
        name: what users ask for.
        matrix: "Hessian", "Gauss-Newton" or "Fisher", what it multiplies by.
        keeps: whether a prepared batch is worth keeping for later vectors.
        replays: whether what is kept is a recording: products run no code of the model,
            and it is of no use where the memory does not allow to keep it.
        failure: why it goes on without what it was to do better.
        cuts: whether the products of the pieces of a batch add up to its own.
        takes_parts: whether vectors of some tensors only are multiplied by the block of
            these.
    """

    name: str
    matrix: str = "Hessian"
    keeps: ClassVar[bool] = False
    replays: bool = False
    failure: str = ""
    cuts: bool = True
    takes_parts: ClassVar[bool] = False

    def check(self, objective: Objective) -> None:  # noqa: B027 (most are always right)
        """Warn where its products are not what one may take them for."""

    def open(self, objective: Objective) -> None:  # noqa: B027 (most share nothing)
        """Make what all batches share, before what each of them keeps is counted."""

    @abstractmethod
    def prepare(self, objective: Objective, batch: Batch) -> Product:
        """The map from a vector to its product, for the sum over the batch."""
