"""A route: one way to multiply vectors by the curvature of one batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from flatgauge.curvature.operator import BatchProduct
from flatgauge.data import Batch
from flatgauge.objective import Objective


class Route(ABC):
    """Prepares the products A_b v of one batch, for the sum over its rows.

    Attributes:
        name: what users ask for.
        matrix: "Hessian" or "Gauss-Newton", what it multiplies by.
        tried: whether route="auto" looks at it.
        fewest: from how many vectors at a time it is worth a look.
        keeps: whether a prepared batch is worth keeping for later vectors.
        counted: whether what is kept was saved by autograd, which can be counted.
        replays: whether what is kept is a recording: products run no code of the model,
            and it is of no use where the memory does not allow to keep it.
    """

    name: str
    matrix: str = "Hessian"
    tried: ClassVar[bool] = True
    fewest: ClassVar[int] = 1
    keeps: bool = False
    counted: bool = False
    replays: ClassVar[bool] = False

    def open(self, objective: Objective) -> None:  # noqa: B027 (most share nothing)
        """Make what all batches share, before what each of them keeps is counted."""

    @abstractmethod
    def prepare(self, objective: Objective, batch: Batch) -> BatchProduct:
        """The map from vectors to their products, for the sum over the batch."""


class Variant(Route):
    """Another route, launched or laid out in another way.

    Variants are put around a route in ascending `order`, each at most once; `words` name
    what is different; `launches` says that kernels are only launched in another way.
    A `hesitant` one raises a RuntimeError where it does not seem to pay.
    """

    order: ClassVar[int]
    words: ClassVar[str]
    launches: ClassVar[bool] = False
    hesitant: bool = False

    def __init__(self, inner: Route):
        self.inner = inner
        self.name = f"{inner.name}, {self.words}"
        self.matrix = inner.matrix

    @classmethod
    @abstractmethod
    def suits(cls, inner: Route, objective: Objective, batch: Batch) -> bool:
        """Whether it can help this route on this objective."""
