"""Extreme eigenvalues by Lanczos, with residuals and honest error bounds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers.inner import inner_products
from flatgauge.solvers.krylov import Lanczos
from flatgauge.solvers.ritz import (
    End,
    distance_beyond,
    extreme,
    run_lanczos,
    spectral_radius,
    verdict,
)
from flatgauge.vectors import Params, generator, unravel

MAX_STEPS = 300
"""The default number of products for one eigenvalue."""


@dataclass(frozen=True)
class Eigenvalues:
    """Extreme eigenvalues, best first, with what is known about their errors.

    Attributes:
        values: the Ritz values: the largest in descending order, then the smallest in
            ascending order, as far as they were asked for.
        vectors: the unit Ritz vectors v, in the same order.
        residuals: ||A v - theta v||. Some eigenvalue is that near to theta.
        error_bounds: |lambda_i - theta_i| is at most this, each with probability at
            least 1 - `certificate.DELTA` over the random start.
        status: whether every value met the tolerance.
        message: what happened, and what to raise if it did not.
        products: the number of products with the operator.
        steps: the Lanczos steps of each run.
    """

    values: list[float]
    vectors: list[Params]
    residuals: list[float]
    error_bounds: list[float]
    status: Status
    message: str
    products: int
    steps: list[int]


@dataclass(frozen=True)
class Extremes:
    """The largest eigenvalue, and what the same run says about the smallest.

    Only `value` was held to the tolerance. `alphas` and `betas` are the run's
    tridiagonal matrix, from which a spectral density can be drawn without more products.
    """

    value: float
    vector: Params
    residual: float
    error_bound: float
    smallest: float
    smallest_residual: float
    smallest_error_bound: float
    status: Status
    message: str
    products: int
    alphas: list[float]
    betas: list[float]

    @property
    def radius(self) -> float:
        """The largest magnitude among the Ritz values."""
        return max(abs(self.value), abs(self.smallest))


def largest_eigenvalue(
    operator: SymmetricOperator,
    tol: float = 1e-3,
    max_steps: int = MAX_STEPS,
    seed: int = 0,
) -> Extremes:
    """The largest algebraic eigenvalue, and the smallest from the same run.

    Args:
        operator: the symmetric operator A.
        tol: stop when ||A v - theta v|| <= tol |theta| for the largest Ritz pair.
        max_steps: the most products to use.
        seed: of the Gaussian start vector.

    Returns:
        An `Extremes`; the status judges the largest eigenvalue alone.

    >>> import torch
    >>> from flatgauge.curvature.operator import DenseOperator
    >>> A = DenseOperator(torch.diag(torch.tensor([-5.0, 1.0, 3.0]).double()))
    >>> found = largest_eigenvalue(A, tol=1e-12)
    >>> round(found.value, 12), round(found.smallest, 12), round(found.radius, 12)
    (3.0, -5.0, 5.0)
    """
    _check(operator, 1, tol, max_steps)
    run = run_lanczos(operator, (1,), tol, max_steps, generator(seed))
    top, bottom = extreme(run, 1, tol), extreme(run, -1, tol)
    status, message = verdict([top], tol, max_steps)
    return Extremes(
        value=top.value,
        vector=unravel(
            _unit(run.combine(top.coefficients[:, None]))[:, 0], run.operator.space
        ),
        residual=max(top.residual, top.floor),
        error_bound=distance_beyond(run, top, 1),
        smallest=-bottom.value,
        smallest_residual=max(bottom.residual, bottom.floor),
        smallest_error_bound=distance_beyond(run, bottom, -1),
        status=status,
        message=message,
        products=run.steps,
        alphas=run.alphas,
        betas=run.betas,
    )


def eigenvalues(
    operator: SymmetricOperator,
    k: int = 1,
    which: str = "largest",
    tol: float = 1e-3,
    max_steps: int = MAX_STEPS,
    seed: int = 0,
) -> Eigenvalues:
    """The k largest or smallest algebraic eigenvalues, counted with multiplicity.

    They are found one at a time, each by a Lanczos run with its own random start in the
    orthogonal complement of the Ritz vectors found before, so that equal and nearly
    equal eigenvalues are counted. At the end the operator is diagonalized on the span of
    the k vectors; V^T A V is known from the residuals, so that this costs no product.

    The error bounds need no gap. For the values mu_1 >= ... >= mu_k of V^T A V Cauchy's
    interlacing gives lambda_i >= mu_i; the minimax principle gives
    lambda_j <= lambda_max of the j-th deflated operator, which is bounded as in
    `certificate.distance_above`; and lambda_i <= lambda_j for j <= i.

    Args:
        operator: the symmetric operator A.
        k: how many at each end.
        which: "largest", "smallest" or "both" ends.
        tol: on ||A v - theta v||, relative to |theta| for the largest and to the
            spectral radius for the smallest, which may well be 0.
        max_steps: the most products for one eigenvalue.
        seed: of the Gaussian start vectors.

    Returns:
        An `Eigenvalues`.

    Raises:
        OptionError: if k, which, tol or max_steps is out of its range.

    >>> import torch
    >>> from flatgauge.curvature.operator import DenseOperator
    >>> A = DenseOperator(torch.diag(torch.tensor([4.0, 4.0, 1.0, 0.0]).double()))
    >>> [round(value, 12) for value in eigenvalues(A, k=3, tol=1e-12).values]
    [4.0, 4.0, 1.0]
    """
    _check(operator, k, tol, max_steps)
    ends = {"largest": (1,), "smallest": (-1,), "both": (1, -1)}
    if which not in ends:
        raise OptionError(
            f"which={which!r} is not known: choose 'largest', 'smallest' or 'both'."
        )
    random = generator(seed)
    # Mixing k pairs can add up their residuals; half the tolerance leaves room for it.
    inner = tol if k == 1 else tol / 2
    first = run_lanczos(operator, ends[which], inner, max_steps, random)
    chains = [
        _chain(first, sign, k, inner, tol, max_steps, random) for sign in ends[which]
    ]
    pairs = [pair for chain in chains for pair in chain.ends]
    runs = [first.steps, *(step for chain in chains for step in chain.later_steps)]
    status, message = verdict(pairs, tol, max_steps)
    return Eigenvalues(
        values=[value for chain in chains for value in chain.values],
        vectors=[
            unravel(column, operator.space)
            for chain in chains
            for column in chain.vectors.T.contiguous()
        ],
        residuals=[max(pair.residual, pair.floor) for pair in pairs],
        error_bounds=[bound for chain in chains for bound in chain.error_bounds],
        status=status,
        message=message,
        products=sum(runs),
        steps=runs,
    )


@dataclass(frozen=True)
class _Chain:
    values: list[float]
    vectors: Tensor
    ends: list[End]
    error_bounds: list[float]
    later_steps: list[int]


def _chain(
    first: Lanczos,
    sign: int,
    k: int,
    inner: float,
    tol: float,
    max_steps: int,
    random: torch.Generator,
) -> _Chain:
    operator, run = first.operator, first
    radius = spectral_radius(first)
    vectors: list[Tensor] = []
    residuals: list[Tensor] = []
    found: list[float] = []
    ceilings: list[float] = []
    later_steps: list[int] = []
    for count in range(k):
        if count:
            deflated = torch.stack(vectors, dim=1)
            run = run_lanczos(
                operator, (sign,), inner, max_steps, random, deflated, radius
            )
            later_steps.append(run.steps)
            radius = max(radius, spectral_radius(run))
        end = extreme(run, sign, inner)
        vectors.append(_unit(run.combine(end.coefficients[:, None]))[:, 0])
        residuals.append(sign * run.residual(end.coefficients))
        found.append(end.value)
        ceilings.append(end.value + distance_beyond(run, end, sign))
    basis, rest = torch.stack(vectors, dim=1), torch.stack(residuals, dim=1)
    # (V^T A V)_ij = <v_i, s_j> for i > j, where s_j is the residual of v_j in the
    # complement of v_1 ... v_{j-1}; what is left of s_j outside V is the true residual.
    overlaps = inner_products(basis.T, rest.T)
    small = np.tril(overlaps.cpu().numpy(), -1)
    values, mixing = np.linalg.eigh(small + small.T + np.diag(found))
    values, mixing = values[::-1], mixing[:, ::-1].copy()
    mix = torch.as_tensor(mixing, dtype=basis.dtype, device=basis.device)
    outside = (rest - basis @ overlaps.to(basis.dtype)) @ mix
    norms = outside.double().norm(dim=0).tolist()
    floor = first.rounding * radius
    ends = [
        End(value, mixing, norm, tol * (abs(value) if sign > 0 else radius), floor)
        for value, norm in zip(values.tolist(), norms, strict=True)
    ]
    lowest = np.minimum.accumulate(np.array(ceilings))
    return _Chain(
        values=[sign * end.value for end in ends],
        vectors=_unit(basis @ mix),
        ends=ends,
        error_bounds=np.maximum(lowest - values, floor).tolist(),
        later_steps=later_steps,
    )


def _unit(columns: Tensor) -> Tensor:
    return (columns / columns.double().norm(dim=0)).to(columns.dtype)


def _check(operator: SymmetricOperator, k: int, tol: float, max_steps: int) -> None:
    if not 1 <= k <= operator.dimension:
        raise OptionError(
            f"k={k} eigenvalues were asked for, but the operator has "
            f"{operator.dimension}: choose k between 1 and that."
        )
    if not tol > 0 or max_steps < 1:
        raise OptionError(
            f"tol={tol:g} and max_steps={max_steps} were given: both must be positive."
        )
