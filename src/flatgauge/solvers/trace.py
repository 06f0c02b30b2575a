"""The trace of an operator that is known only by its products."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy import stats

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers.krylov import require_finite
from flatgauge.solvers.student import skewness
from flatgauge.solvers.xtrace import CHUNK, XTrace, random_signs
from flatgauge.vectors import generator

# Fresh probes of Hutchinson's estimator, over those that would just do.
MARGIN = 1.3


@dataclass(frozen=True)
class Trace:
    """A trace with its standard error.

    Attributes:
        value: the trace or its estimate.
        standard_error: one standard error of the estimate, widened for skewness; 0 if
            the trace was computed exactly.
        degrees_of_freedom: of the standard error, for Student's t.
        status: whether the target was met.
        message: what happened, and what to raise if it was not.
        products: the number of products with the operator.
        probes: the number of random vectors behind the value.
    """

    value: float
    standard_error: float
    degrees_of_freedom: float
    status: Status
    message: str
    products: int
    probes: int

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval value -+ t * standard_error of Student's t."""
        quantile = float(stats.t.ppf((1 + level) / 2, self.degrees_of_freedom))
        half = quantile * self.standard_error
        return self.value - half, self.value + half


class Hutchinson:
    """The mean of w^T A w over random sign vectors w, one product each (1990)."""

    first = 32

    def __init__(self, operator: SymmetricOperator, random: torch.Generator):
        self.operator = operator
        self._random = random
        self._singles: list[float] = []

    @property
    def probes(self) -> int:
        """The number m of probes so far."""
        return len(self._singles)

    def grow(self, probes: int) -> None:
        """Add probes until there are this many."""
        first = next(iter(self.operator.space.values()))
        while self.probes < probes:
            count = min(CHUNK, probes - self.probes)
            signs = random_signs(self.operator.dimension, count, self._random, first)
            images = self.operator.multiply_flat(signs)
            singles = (signs.double() * images.double()).sum(dim=0).tolist()
            require_finite(singles)
            self._singles += singles

    def estimate(self, start: int = 0) -> tuple[float, float, float, float]:
        """The estimate, its standard error and degrees of freedom, and its scale.

        The standard error is widened for the skewness of the single estimates, and the
        scale is their root mean square.

        Args:
            start: the number of probes that are left out, the first ones.
        """
        singles = np.array(self._singles[start:])
        count = len(singles)
        error = singles.std(ddof=1) / math.sqrt(count) * float(skewness(singles))
        scale = math.sqrt(np.square(singles).mean())
        return float(singles.mean()), float(error), count - 1.0, scale


def estimate_trace(
    operator: SymmetricOperator,
    target: float = 0.02,
    max_products: int = 512,
    seed: int = 0,
    method: str = "xtrace",
) -> Trace:
    """Estimate the trace, adding probes until the standard error is small enough.

    The target is relative to |trace|; if zero lies within two standard errors, it is
    relative to the scale of the estimates instead (see the two estimators), so that a
    vanishing trace ends the search as well. Hutchinson's probes are used in two parts,
    so that the interval of the result holds in spite of the search: the first, 32 or
    more, say how many are enough, and so many fresh ones give the value. When the
    next look would cost as many products as there are rows, the trace is computed
    exactly, if it can be paid for.

    Args:
        operator: the symmetric operator.
        target: the relative standard error to reach.
        max_products: the most products to use.
        seed: of the probes.
        method: "xtrace", which finds the large eigenvalues and is the better choice for
            the spectra of networks, or "hutchinson".

    Returns:
        A `Trace`.

    Raises:
        OptionError: for an unknown method, a target that is not positive, or too few
            products for a first look.
        NonFiniteError: if a product is NaN or infinite.

    >>> import torch
    >>> from flatgauge.curvature.operator import DenseOperator
    >>> A = DenseOperator(torch.diag(torch.arange(1.0, 101.0).double()))
    >>> found = estimate_trace(A)
    >>> low, high = found.interval()
    >>> bool(low < 5050 < high), found.standard_error < 0.02 * found.value
    (True, True)
    """
    kinds = {"xtrace": XTrace, "hutchinson": Hutchinson}
    if method not in kinds:
        raise OptionError(
            f"method={method!r} is not known: choose 'xtrace' or 'hutchinson'."
        )
    if not target > 0:
        raise OptionError(f"target={target:g} was given: it must be positive.")
    kind, size = kinds[method], operator.dimension
    least = kind.first * (2 if kind is XTrace else 1)
    if size <= min(least, max_products):
        return _exact(operator, 0)
    if max_products < least:
        raise OptionError(
            f"max_products={max_products} is too few for a first look: "
            f"raise it to {least} or more."
        )
    search = _by_xtrace if kind is XTrace else _by_hutchinson
    return search(operator, target, max_products, seed)


def _by_xtrace(
    operator: SymmetricOperator, target: float, max_products: int, seed: int
) -> Trace:
    estimator, size = XTrace(operator, generator(seed)), operator.dimension
    probes = estimator.first
    while True:
        estimator.grow(probes)
        look = _Look(*estimator.estimate(), operator.rounding, target)
        products = 2 * probes
        if look.excess <= 1:
            return look.reached(products, probes)
        following = min(estimator.following(look.excess), max_products // 2)
        if following == probes or size <= 2 * following:
            if products + size <= max_products:
                return _exact(operator, products)
            return look.missed(products, probes, max_products)
        probes = following


def _by_hutchinson(
    operator: SymmetricOperator, target: float, max_products: int, seed: int
) -> Trace:
    # What decides how many probes are enough has no part in the estimate. Runs that stop
    # because their own error came out small, or their trace large, are the unlucky ones.
    estimator, size = Hutchinson(operator, generator(seed)), operator.dimension
    estimator.grow(estimator.first)
    while True:
        start = estimator.probes
        before = _Look(*estimator.estimate(), operator.rounding, target)
        fresh = max(estimator.first, math.ceil(MARGIN * start * before.excess**2))
        if start + fresh > max_products or size <= fresh:
            if start + size <= max_products:
                return _exact(operator, start)
            estimator.grow(max_products)
            look = _Look(*estimator.estimate(), operator.rounding, target)
            return look.missed(max_products, max_products, max_products)
        estimator.grow(start + fresh)
        look = _Look(*estimator.estimate(start), operator.rounding, target)
        if look.excess <= 1:
            return look.reached(start + fresh, fresh)


class _Look:
    """What an estimator says at one moment, against the target."""

    def __init__(
        self,
        value: float,
        error: float,
        freedom: float,
        scale: float,
        rounding: float,
        target: float,
    ):
        self.value, self.freedom, self.scale = value, freedom, scale
        self.error, self.target = max(error, rounding * scale), target
        self.vanishing = abs(value) <= 2 * self.error
        allowed = target * (scale if self.vanishing else abs(value))
        self.excess = self.error / allowed if self.error > 0 else 0.0

    def reached(self, products: int, probes: int) -> Trace:
        """The trace, with an error that met the target."""
        message = (
            "The trace cannot be told from zero, so the target was taken relative to "
            f"the scale of the estimates, {self.scale:.3g}."
            if self.vanishing
            else f"The standard error met the target {self.target:g}."
        )
        return self._trace(Status.ESTIMATED, message, products, probes)

    def missed(self, products: int, probes: int, max_products: int) -> Trace:
        """The trace, with what to raise."""
        message = (
            f"The standard error is {self.error:.3g} after {probes} probes, and "
            f"{self.target:g} of the trace is out of reach: raise "
            f"max_products={max_products} or target."
        )
        return self._trace(Status.NOT_CONVERGED, message, products, probes)

    def _trace(self, status: Status, message: str, products: int, probes: int) -> Trace:
        return Trace(
            value=self.value,
            standard_error=self.error,
            degrees_of_freedom=self.freedom,
            status=status,
            message=message,
            products=products,
            probes=probes,
        )


def _exact(operator: SymmetricOperator, products: int) -> Trace:
    first = next(iter(operator.space.values()))
    size = operator.dimension
    total = 0.0
    for start in range(0, size, CHUNK):
        rows = torch.arange(start, min(start + CHUNK, size), device=first.device)
        columns = first.new_zeros(size, len(rows))
        columns[rows, torch.arange(len(rows), device=first.device)] = 1.0
        images = operator.multiply_flat(columns)
        total += images[rows].diagonal().double().sum().item()
    return Trace(
        value=total,
        standard_error=0.0,
        degrees_of_freedom=math.inf,
        status=Status.EXACT,
        message=f"Every one of the {size} diagonal entries was computed.",
        products=products + size,
        probes=0,
    )
