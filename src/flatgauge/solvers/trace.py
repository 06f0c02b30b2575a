"""The trace of an operator that is known only by its products."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.special import stdtrit

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.deadline import OutOfTime, tell
from flatgauge.errors import OptionError
from flatgauge.memory import memory_budget
from flatgauge.results import Status
from flatgauge.solvers.hutchinson import Hutchinson
from flatgauge.solvers.xtrace import CHUNK, XTrace
from flatgauge.vectors import generator

# The smallest number of probes behind an estimate.
FIRST = 8
# The fewest that have a standard error.
LEAST = 2
# Probes that Hutchinson must seem to need for XTrace to be tried, which costs FIRST.
MANY = 48
# The relative standard error above which there is no estimate to speak of.
USABLE = 0.10


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
        method: "exact", "hutchinson" or "xtrace".
    """

    value: float
    standard_error: float
    degrees_of_freedom: float
    status: Status
    message: str
    products: int
    probes: int
    method: str

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval value -+ t * standard_error of Student's t."""
        quantile = float(stdtrit(self.degrees_of_freedom, (1 + level) / 2))
        half = quantile * self.standard_error
        return self.value - half, self.value + half


def estimate_trace(
    operator: SymmetricOperator,
    target: float = 0.02,
    max_products: int = 64,
    seed: int = 0,
    method: str = "auto",
) -> Trace:
    """Estimate the trace, adding probes until the standard error is small enough.

    The target is relative to |trace|. Where positive and negative curvature cancel, it is
    out of reach, and the search ends with `max_products`; an error of at most 10 % of the
    trace still is an estimate. When the next look would cost as many products as there
    are rows, the trace is computed exactly, if it can be paid for.

    Eight plain probes are where "auto" begins. If their variance asks for many more, their
    products begin an XTrace, which finds the large eigenvalues; it goes on if it says more
    than as many plain probes would, and otherwise these go on.

    Args:
        operator: the symmetric operator.
        target: the relative standard error to reach.
        max_products: the most products to use.
        seed: of the probes.
        method: "auto", or "xtrace" or "hutchinson" alone.

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
    >>> bool(low <= 5050 <= high), found.standard_error <= 0.02 * found.value
    (True, True)
    """
    if method not in ("auto", "xtrace", "hutchinson"):
        raise OptionError(
            f"method={method!r} is not known: choose 'auto', 'xtrace' or 'hutchinson'."
        )
    if not target > 0:
        raise OptionError(f"target={target:g} was given: it must be positive.")
    least = 2 * FIRST if method == "xtrace" else FIRST
    if operator.dimension <= min(2 * FIRST, max_products):
        return _exact(operator, 0)
    if max_products < least:
        raise OptionError(
            f"max_products={max_products} is too few for a first look: "
            f"raise it to {least} or more."
        )
    search = _Search(operator, target, max_products)
    random = generator(seed)
    if method == "xtrace":
        return search.by(XTrace(operator, random))
    plain = Hutchinson(operator, random)
    if method == "hutchinson":
        return search.by(plain)
    return search.by_either(plain, XTrace(operator, random))


class _Search:
    """Looks at an estimator until it meets the target, or products run out."""

    def __init__(self, operator: SymmetricOperator, target: float, max_products: int):
        self.operator = operator
        self.target = target
        self.max_products = max_products
        self._before = operator.products

    @property
    def products(self) -> int:
        """Those of this search."""
        return self.operator.products - self._before

    def look(self, estimator: Hutchinson | XTrace) -> _Look:
        look = _Look(*estimator.estimate(), self.operator.rounding, self.target)
        tell(look.value, look.error, self.max_products)
        return look

    def rescued(self, estimator: Hutchinson | XTrace, stop: OutOfTime) -> Trace:
        """What the probes say at the end of the time, if there are two."""
        if estimator.probes < LEAST:
            raise stop
        name = type(estimator).__name__.lower()
        return self.look(estimator).stopped(self.products, estimator.probes, name, stop)

    def by(self, estimator: Hutchinson | XTrace) -> Trace:
        """The trace by one estimator, which may have probes already."""
        try:
            return self._grown(estimator)
        except OutOfTime as stop:
            return self.rescued(estimator, stop)

    def _grown(self, estimator: Hutchinson | XTrace) -> Trace:
        estimator.grow(FIRST)
        name = type(estimator).__name__.lower()
        cost, size = estimator.products_per_probe, self.operator.dimension
        while True:
            look, probes = self.look(estimator), estimator.probes
            if look.excess <= 1:
                return look.reached(self.products, probes, name)
            left = (self.max_products - self.products) // cost
            following = min(estimator.following(look.excess), probes + left)
            if following == probes or size <= cost * following:
                if self.products + size <= self.max_products:
                    return _exact(self.operator, self.products)
                if following == probes:
                    return look.missed(self.products, probes, name, self.max_products)
            estimator.grow(following)

    def by_either(self, plain: Hutchinson, other: XTrace) -> Trace:
        """Plain probes, unless their variance asks for more and XTrace's is smaller."""
        if self.max_products < 2 * FIRST or not self._fits():
            return self.by(plain)
        try:
            signs, images = plain.add(FIRST)
        except OutOfTime as stop:
            return self.rescued(plain, stop)
        look = self.look(plain)
        if FIRST * look.excess**2 <= MANY:
            del signs, images
            return self.by(plain)
        try:
            other.add(signs.T, images.T.contiguous())
        except OutOfTime as stop:
            return self.rescued(plain, stop)
        del signs, images
        # The variance of one product: what is left of it, after as many.
        if self.products * self.look(other).error ** 2 < FIRST * look.error**2:
            return self.by(other)
        del other
        return self.by(plain)

    def _fits(self) -> bool:
        """Whether all vectors that XTrace holds have room."""
        first = next(iter(self.operator.space.values()))
        vectors = self.max_products // 2 + 4 * CHUNK
        needed = vectors * self.operator.dimension * first.element_size()
        return needed <= memory_budget(first.device, self.operator.memory)


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
        self.value, self.freedom = value, freedom
        self.error, self.target = max(error, rounding * scale), target
        allowed = target * abs(value)
        # Of a trace of nothing but zeros there is nothing to be uncertain about.
        self.excess = self.error / allowed if allowed > 0 else math.inf
        if self.error == 0:
            self.excess = 0.0

    def reached(self, products: int, probes: int, method: str) -> Trace:
        """The trace, with an error that met the target."""
        message = f"The standard error met the target {self.target:g}."
        return self._trace(Status.ESTIMATED, message, products, probes, method)

    def missed(
        self, products: int, probes: int, method: str, max_products: int
    ) -> Trace:
        """The trace, with what to raise."""
        usable = self.error <= USABLE * abs(self.value)
        message = (
            f"The standard error is {self.error:.3g} after {probes} probes, above the "
            f"target {self.target:g} of the trace: raise max_products={max_products} for a "
            "smaller one."
            if usable
            else f"The standard error is {self.error:.3g} after {probes} probes, too large "
            f"for a trace of {self.value:.3g}, in which positive and negative curvature "
            f"may cancel: raise max_products={max_products}."
        )
        status = Status.ESTIMATED if usable else Status.NOT_CONVERGED
        return self._trace(status, message, products, probes, method)

    def stopped(
        self, products: int, probes: int, method: str, stop: OutOfTime
    ) -> Trace:
        """The trace so far."""
        message = stop.after_products(products)
        return self._trace(Status.NOT_CONVERGED, message, products, probes, method)

    def _trace(
        self, status: Status, message: str, products: int, probes: int, method: str
    ) -> Trace:
        return Trace(
            value=self.value,
            standard_error=self.error,
            degrees_of_freedom=self.freedom,
            status=status,
            message=message,
            products=products,
            probes=probes,
            method=method,
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
        method="exact",
    )
