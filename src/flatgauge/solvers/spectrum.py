"""Density, largest and smallest eigenvalues from one set of Lanczos runs."""

from __future__ import annotations

from dataclasses import dataclass, replace

from flatgauge.curvature.operator import DenseOperator, SymmetricOperator
from flatgauge.solvers.deflation import deflate_from, first_pairs, inner_tolerance
from flatgauge.solvers.density import (
    SpectralDensity,
    average_density,
    check_probes,
    exact_density,
    probe,
)
from flatgauge.solvers.lanczos import (
    MAX_STEPS,
    Eigenvalues,
    check_request,
    eigenvalues,
    gather,
)
from flatgauge.vectors import generator, unravel


@dataclass(frozen=True)
class Spectrum:
    """The parts of a spectrum. They share products, so that these do not add up.

    Attributes:
        density: the distribution of the eigenvalues.
        largest: the k largest eigenvalues.
        smallest: the smallest one.
        products: the number of products with the operator, over all.
    """

    density: SpectralDensity
    largest: Eigenvalues
    smallest: Eigenvalues
    products: int


def solve_spectrum(
    operator: SymmetricOperator,
    k: int = 5,
    probes: int = 10,
    steps: int = 80,
    tol: float = 1e-3,
    max_steps: int = MAX_STEPS,
    seed: int = 0,
) -> Spectrum:
    """The density of the eigenvalues, the k largest and the smallest.

    The probes of the density have the same Gaussian starts as the runs that find the
    largest eigenvalues one after another: the first probe gives the largest and the
    smallest, the i-th one, with the i - 1 vectors found before deflated, the next
    largest. What was deflated is put back into its quadrature (`RunSummary.quadrature`).
    A run goes on beyond `steps` only where its eigenvalue needs it, and runs are added
    only if k is larger than `probes`. Up to n = `steps` the matrix itself is computed.

    Args:
        operator: the symmetric operator A.
        k: how many of the largest eigenvalues.
        probes: the number of random vectors, as in `density.spectral_density`.
        steps: the products for each probe.
        tol: on the residuals, as in `lanczos.eigenvalues`.
        max_steps: the most products for one eigenvalue, if that is more than `steps`.
        seed: of the probes.

    Returns:
        A `Spectrum`.

    Raises:
        OptionError: if an option is out of its range.

    >>> import torch
    >>> from flatgauge.curvature.operator import DenseOperator
    >>> A = DenseOperator(torch.diag(torch.arange(1.0, 101.0).double()))
    >>> found = solve_spectrum(A, k=2, probes=3, steps=90, tol=1e-9)
    >>> [round(value, 6) for value in found.largest.values + found.smallest.values]
    [100.0, 99.0, 1.0]
    >>> found.products
    270
    """
    check_probes(probes, steps)
    check_request(operator, k, tol, max_steps)
    if operator.dimension <= steps:
        return _from_matrix(operator, k, tol, max_steps, seed)
    most, random = max(max_steps, steps), generator(seed)
    inner = inner_tolerance(tol, k)
    ends = (1, -1)
    bounded = ends if k == 1 else (-1,)
    high, low = first_pairs(operator, ends, inner, most, random, steps, bounded, k)
    later = [steps if index < probes else 1 for index in range(1, k)]
    top = deflate_from(operator, high, 1, later, tol, most, random)
    bottom = deflate_from(operator, low, -1, [], tol, most, random)
    rest = [probe(operator, steps, random) for _ in range(probes - k)]
    runs = [*top.runs, *rest]
    return Spectrum(
        density=average_density(runs[:probes], operator.dimension),
        largest=gather(operator, [top], tol, most),
        smallest=gather(operator, [bottom], tol, most),
        products=sum(run.steps for run in runs),
    )


def _from_matrix(
    operator: SymmetricOperator, k: int, tol: float, max_steps: int, seed: int
) -> Spectrum:
    matrix = operator.to_dense()
    size = len(matrix)

    def end(count: int, which: str) -> Eigenvalues:
        inside = DenseOperator(matrix, operator.rounding)
        found = eigenvalues(inside, count, which, tol, max_steps, seed)
        named = [unravel(vector["x"], operator.space) for vector in found.vectors]
        return replace(found, vectors=named, products=size)

    return Spectrum(exact_density(matrix), end(k, "largest"), end(1, "smallest"), size)
