"""The trace of an operator that is known only by its products."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy.special import stdtrit

from flatgauge.curvature.operator import SymmetricOperator, rounding_of
from flatgauge.deadline import OutOfTime, tell
from flatgauge.errors import OptionError
from flatgauge.memory import memory_budget
from flatgauge.results import Status
from flatgauge.shards import added, plain
from flatgauge.solvers.hutchinson import Hutchinson
from flatgauge.solvers.strata import LOOK, Strata, couplings, grouped
from flatgauge.solvers.xtrace import XTrace
from flatgauge.vectors import (
    Params,
    generator,
    own_bytes,
    ravel,
    together,
    unit_columns,
)

# The smallest number of probes behind an estimate.
FIRST = 8
# The fewest that have a standard error.
LEAST = 2
# Probes that Hutchinson must seem to need for others to be tried, which costs some.
MANY = 48
# Few probes hardly ever seem to need less than this share of what they do need: from
# SURE * MANY on, couplings of tensors are looked at.
SURE = 0.25
# The share of them that groups of tensors must seem to need.
WORTHWHILE = 0.9
# Times the most products: what a plan reckons with where the target is out of reach.
BEYOND = 8
# Squares of traces beyond this do not fit into a float.
HUGE = 1e290
# The relative standard error above which there is no estimate to speak of.
USABLE = 0.10

Estimator = Hutchinson | Strata | XTrace


@dataclass(frozen=True)
class Trace:
    """A trace with its standard error.

    Attributes:
        value: the trace or its estimate.
        standard_error: one standard error of the estimate, widened for skewness. Of an
            exact trace: what coarse products may be off by, 0 where they have all bits.
        degrees_of_freedom: of the standard error, for Student's t.
        status: whether the target was met.
        message: what happened, and what to raise if it was not.
        products: the number of products with the operator.
        probes: the number of random vectors behind the value.
        method: "exact", "hutchinson", "strata" or "xtrace".
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

    Four to eight plain probes are where "auto" begins. If their variance asks for many
    more, six products show which tensors are coupled. Where most of the variance lies in
    pairs of them, the traces of groups of tensors are estimated apart ("strata"). Else the
    products so far begin an XTrace, which finds the large eigenvalues; it goes on if it
    says more than as many plain probes would, and otherwise these go on.

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
    return search.by_either(plain, XTrace(operator, random), random)


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

    def look(self, estimator: Estimator) -> _Look:
        """What the estimator says now, against the target."""
        value, error, freedom, scale = estimator.estimate()
        error = max(error, self.operator.rounding * scale)
        tell(value, error, self.max_products)
        allowed = self.target * abs(value)
        excess = error / allowed if allowed > 0 else math.inf
        # Of a trace of nothing but zeros there is nothing to be uncertain about.
        return _Look(value, error, freedom, excess if error else 0.0)

    def rescued(self, estimator: Estimator, stop: OutOfTime) -> Trace:
        """What the probes say at the end of the time, if there are two."""
        if estimator.probes < LEAST:
            raise stop
        message = stop.after_products(self.products)
        look = self.look(estimator)
        return self._found(estimator, look, Status.NOT_CONVERGED, message)

    def by(self, estimator: Estimator) -> Trace:
        """The trace by one estimator, which may have probes already."""
        try:
            return self._grown(estimator)
        except OutOfTime as stop:
            return self.rescued(estimator, stop)

    def _grown(self, estimator: Estimator) -> Trace:
        estimator.grow(estimator.first)
        cost, size = estimator.products_per_probe, self.operator.dimension
        while True:
            look, probes = self.look(estimator), estimator.probes
            if look.excess <= 1:
                message = f"The standard error met the target {self.target:g}."
                return self._found(estimator, look, Status.ESTIMATED, message)
            left = (self.max_products - self.products) // cost
            following = min(estimator.following(look.excess), probes + left)
            if following == probes or size <= cost * following:
                if self.products + size <= self.max_products:
                    return _exact(self.operator, self.products)
                if following == probes:
                    return self._missed(estimator, look)
            estimator.grow(following)

    def _missed(self, estimator: Estimator, look: _Look) -> Trace:
        """The trace, with what to raise."""
        usable = look.error <= USABLE * abs(look.value)
        message = (
            f"The standard error is {look.error:.3g} after {estimator.probes} probes"
        )
        message += (
            f", above the target {self.target:g} of the trace: raise "
            f"max_products={self.max_products} for a smaller one."
            if usable
            else f", too large for a trace of {look.value:.3g}, in which positive and "
            f"negative curvature may cancel: raise max_products={self.max_products}."
        )
        status = Status.ESTIMATED if usable else Status.NOT_CONVERGED
        return self._found(estimator, look, status, message)

    def _found(
        self, estimator: Estimator, look: _Look, status: Status, message: str
    ) -> Trace:
        return Trace(
            value=look.value,
            standard_error=look.error,
            degrees_of_freedom=look.freedom,
            status=status,
            message=message,
            products=self.products,
            probes=estimator.probes,
            method=type(estimator).__name__.lower(),
        )

    def by_either(
        self, plain: Hutchinson, other: XTrace, random: torch.Generator
    ) -> Trace:
        """Plain probes, unless their variance asks for more and another's is smaller."""
        if self.max_products < 2 * FIRST:
            return self.by(plain)
        held: list[tuple[list[Params], list[Params]]] | None = (
            [] if self._fits() else None
        )
        many = looked = False
        strata: Strata | None = None
        try:
            for probes in (FIRST // 2, FIRST):
                if held is None:
                    plain.grow(probes)
                else:
                    held.append(plain.add(probes - plain.probes))
                needed = probes * self.look(plain).excess ** 2
                many = needed > MANY
                if needed > SURE * MANY and self._coupled(plain) and not looked:
                    strata, looked = self._strata(plain, random), True
                if strata is not None:
                    break
        except OutOfTime as stop:
            return self.rescued(plain, stop)
        if strata is not None:
            del held, other
            return self._by_strata(strata, plain)
        if held is None or not many:
            del held
            return self.by(plain)
        return self._by_xtrace(held, plain, other)

    def _coupled(self, plain: Hutchinson) -> bool:
        """Whether all of the squares in the rows and columns ask for many probes.

        That is the variance and the diagonal's part; few probes tell it better.
        """
        variance = 2 * float(plain.squares.sum()) / plain.probes
        if variance > HUGE:
            return False
        return variance > MANY * (self.target * plain.estimate()[0]) ** 2

    def _strata(self, plain: Hutchinson, random: torch.Generator) -> Strata | None:
        """Groups of tensors, if they are worth their while."""
        left = self.max_products - self.products - LOOK
        if len(plain.operator.space) == 1 or left < FIRST:
            return None
        coupled = couplings(self.operator, plain.squares, random)
        variance = 2 * float(coupled.sum())
        if not math.isfinite(variance) or variance == 0:
            return None
        target = (self.target * plain.estimate()[0]) ** 2
        allowed = max(target, variance / (BEYOND * self.max_products))
        grouping = grouped(coupled, allowed)
        planned = grouping.probes(allowed)
        strata = Strata(self.operator, grouping, planned, random)
        if planned.sum() > WORTHWHILE * variance / allowed or strata.least > left:
            return None
        # Where all of the diagonal can be paid for, that must stay so at the first look.
        spare = left - self.operator.dimension
        if spare >= 0 and planned.sum() >= self.operator.dimension:
            return None
        strata.first = min(strata.first, spare if spare >= strata.least else left)
        return strata

    def _by_strata(self, strata: Strata, plain: Hutchinson) -> Trace:
        try:
            return self._grown(strata)
        except OutOfTime as stop:
            return self.rescued(strata if strata.usable else plain, stop)

    def _by_xtrace(
        self,
        held: list[tuple[list[Params], list[Params]]],
        plain: Hutchinson,
        other: XTrace,
    ) -> Trace:
        """XTrace from the products so far, or more plain probes."""
        look = self.look(plain)
        signs, images = (
            torch.stack([ravel(vector) for vectors in parts for vector in vectors])
            for parts in zip(*held, strict=True)
        )
        held.clear()
        try:
            other.add(signs, images)
        except OutOfTime as stop:
            return self.rescued(plain, stop)
        del signs, images
        # The variance of one product: what is left of it, after as many.
        spent = other.products_per_probe * other.probes
        if spent * self.look(other).error ** 2 < plain.probes * look.error**2:
            return self.by(other)
        del other
        return self.by(plain)

    def _fits(self) -> bool:
        """Whether all vectors that XTrace holds have room."""
        first = next(iter(self.operator.space.values()))
        vectors = self.max_products // 2 + 4 * together(self.operator.space)
        needed = vectors * own_bytes(self.operator.space)
        free = memory_budget(first.device, self.operator.memory)
        return bool(self.operator.ranks.least(int(needed <= free)))


@dataclass(frozen=True)
class _Look:
    """An estimate, with its error in all and as a multiple of what the target allows."""

    value: float
    error: float
    freedom: float
    excess: float


def _exact(operator: SymmetricOperator, products: int) -> Trace:
    size = operator.dimension
    total = reach = 0.0
    some = together(operator.space)
    for start in range(0, size, some):
        columns = unit_columns(operator.space, start, min(start + some, size))
        entries = columns * operator.multiply_flat(columns)
        total += added(plain(entries).double().sum(), entries).item()
        reach += added(plain(entries).double().abs().sum(), entries).item()
    dtype = next(iter(operator.space.values())).dtype
    coarse = operator.rounding if operator.rounding > rounding_of(dtype) else 0.0
    return Trace(
        value=total,
        standard_error=coarse * reach,
        degrees_of_freedom=math.inf,
        status=Status.EXACT,
        message=f"Every one of the {size} diagonal entries was computed.",
        products=products + size,
        probes=0,
        method="exact",
    )
