"""The trace of an operator that is known only by its products."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from scipy import stats

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers.krylov import require_finite
from flatgauge.solvers.xtrace import CHUNK, XTrace, random_signs
from flatgauge.vectors import generator


@dataclass(frozen=True)
class Trace:
    """A trace with its standard error.

    Attributes:
        value: the trace or its estimate.
        standard_error: of the estimate; 0 if the trace was computed exactly.
        degrees_of_freedom: of the standard error, for Student's t.
        status: whether the target was met.
        message: what happened, and what to raise if it was not.
        products: the number of products with the operator.
        probes: the number of random vectors.
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

    products_per_probe = 1
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

    def following(self, excess: float) -> int:
        """How many probes to look at next, if the error is `excess` times the target.

        One jump, a little too far: many looks would pick out errors that came out too
        small by chance.
        """
        return math.ceil(self.probes * max(1.5, 1.1 * excess**2))

    def estimate(self) -> tuple[float, float, float, float]:
        """The estimate, its standard error and degrees of freedom, and its scale.

        The scale is the root mean square of the single estimates.
        """
        singles = torch.tensor(self._singles, dtype=torch.float64)
        error = singles.std().item() / math.sqrt(self.probes)
        scale = singles.square().mean().sqrt().item()
        return singles.mean().item(), error, self.probes - 1.0, scale


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
    vanishing trace ends the search as well. When the next look would cost as many
    products as there are rows, the trace is computed exactly, if it can be paid for.

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
    estimator = kinds[method](operator, generator(seed))
    each, size = estimator.products_per_probe, operator.dimension
    if size <= min(each * estimator.first, max_products):
        return _exact(operator, 0)
    if max_products < each * estimator.first:
        raise OptionError(
            f"max_products={max_products} is too few for a first look: "
            f"raise it to {each * estimator.first} or more."
        )
    probes = estimator.first
    while True:
        estimator.grow(probes)
        found, excess = _judge(estimator, target, max_products)
        if found.status is Status.ESTIMATED:
            return found
        following = min(estimator.following(excess), max_products // each)
        if following == probes or size <= each * following:
            if found.products + size <= max_products:
                return _exact(operator, found.products)
            return found
        probes = following


def _judge(
    estimator: XTrace | Hutchinson, target: float, max_products: int
) -> tuple[Trace, float]:
    value, error, freedom, scale = estimator.estimate()
    error = max(error, estimator.operator.rounding * scale)
    vanishing = abs(value) <= 2 * error
    allowed = target * (scale if vanishing else abs(value))
    reached = error <= allowed
    if not reached:
        message = (
            f"The standard error is {error:.3g}, above {target:g} of the trace, after "
            f"{estimator.probes} probes: raise max_products={max_products} or target."
        )
    elif vanishing:
        message = (
            "The trace cannot be told from zero, so the target was taken relative to "
            f"the scale of the estimates, {scale:.3g}."
        )
    else:
        message = f"The standard error met the target {target:g}."
    found = Trace(
        value=value,
        standard_error=error,
        degrees_of_freedom=freedom,
        status=Status.ESTIMATED if reached else Status.NOT_CONVERGED,
        message=message,
        products=estimator.probes * estimator.products_per_probe,
        probes=estimator.probes,
    )
    return found, 0.0 if reached else error / allowed


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
