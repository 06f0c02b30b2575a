"""Hutchinson's estimator of a trace, grown probe by probe."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch

from flatgauge import deadline
from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.shards import added, flat, is_sharded, plain
from flatgauge.solvers.inner import dot
from flatgauge.solvers.krylov import require_finite
from flatgauge.solvers.student import skewness
from flatgauge.vectors import Params, rademacher

# How much further a look is at most, in probes: what decides is uncertain itself.
STRIDE = 1.5


class Hutchinson:
    """The mean of w^T A w over random sign vectors w, one product each (1990).

    Attributes:
        squares: Σ ‖(A w)_i‖² over the probes, for each tensor i of the space: of one
            probe it is Σ_j ‖A_ij‖_F² in the mean, and close to that.
    """

    products_per_probe = 1
    first = 8

    def __init__(
        self,
        operator: SymmetricOperator,
        random: torch.Generator,
        tell: Callable[[float, float], object] = deadline.tell,
    ):
        self.operator = operator
        self.squares = np.zeros(len(operator.space))
        self._random = random
        self._tell = tell
        self._singles: list[float] = []

    @property
    def singles(self) -> np.ndarray:
        """The estimates of the single probes."""
        return np.array(self._singles)

    @property
    def probes(self) -> int:
        """The number m of probes so far."""
        return len(self._singles)

    def grow(self, probes: int) -> None:
        """Add probes until there are this many."""
        while self.probes < probes:
            most = self.operator.at_a_time(probes - self.probes)
            self.add(deadline.fitting(most))

    def add(self, count: int) -> tuple[list[Params], list[Params]]:
        """Add so many probes; they and their products.

        Where time runs out among them, those that were multiplied are kept.
        """
        drawn: list[Params] = []
        images: list[Params] = []
        while len(drawn) < count:
            some = deadline.fitting(count - len(drawn))
            signs = [rademacher(self.operator.space, self._random) for _ in range(some)]
            products = self.operator @ signs
            singles = [_inner(*pair) for pair in zip(signs, products, strict=True)]
            require_finite(singles)
            self._singles += singles
            self.squares += sum(map(squares, products))
            if self.probes > 1:
                value, error, *_ = self.estimate()
                self._tell(value, error)
            drawn += signs
            images += products
        return drawn, images

    def following(self, excess: float) -> int:
        """How many probes to look at next, if the error is `excess` times the target."""
        return following(self.probes, excess)

    def estimate(self) -> tuple[float, float, float, float]:
        """The estimate, its standard error and degrees of freedom, and its scale.

        The standard error is widened for the skewness of the single estimates, and the
        scale is their root mean square.
        """
        singles = self.singles
        count = len(singles)
        error = singles.std(ddof=1) / math.sqrt(count) * float(skewness(singles))
        scale = math.sqrt(np.square(singles).mean())
        return float(singles.mean()), float(error), count - 1.0, scale


def following(probes: int, excess: float) -> int:
    """After how many independent probes an error would be as asked, or a look is due."""
    return max(math.ceil(probes * min(excess**2, STRIDE)), probes + 1)


def squares(vector: Params) -> np.ndarray:
    """The squared norm of each tensor."""
    own = list(vector.values())
    if is_sharded(own[0]):
        own = [flat(tensor) for tensor in own]
    norms = torch.stack([torch.linalg.vector_norm(plain(t)) for t in own])
    return added(norms.double().square(), own[0]).cpu().numpy()


def _inner(left: Params, right: Params) -> float:
    """The inner product, tensor by tensor: flat copies of long vectors would cost more."""
    return float(sum(dot(flat(left[n]), flat(right[n])) for n in left))
