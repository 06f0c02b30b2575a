"""Extreme eigenvalues by Lanczos, with residuals and honest error bounds."""

from __future__ import annotations

from dataclasses import dataclass

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers.deflation import (
    Deflation,
    deflate_from,
    first_pairs,
    inner_tolerance,
    unit_columns,
)
from flatgauge.solvers.ritz import distance_beyond, extreme, run_lanczos, verdict
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
        error_bounds: |lambda_i - theta_i| is at most this, for all the values of one end
            at once with probability at least 1 - `certificate.DELTA` over the random
            starts. It is the solver's error, and not that of the data.
        status: whether every value met the tolerance.
        message: what happened, and what to raise if it did not.
        products: the number of products with the operator that were used.
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

    `status` and `message` judge `value` alone, `smallest_status` the smallest.
    `alphas` and `betas` are the run's tridiagonal matrix, up to its first restart, from
    which a spectral density can be drawn without more products.
    """

    value: float
    vector: Params
    residual: float
    error_bound: float
    smallest: float
    smallest_residual: float
    smallest_error_bound: float
    smallest_status: Status
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
    both: bool = False,
    bounded: bool = True,
) -> Extremes:
    """The largest algebraic eigenvalue, and the smallest from the same run.

    Args:
        operator: the symmetric operator A.
        tol: stop when ||A v - theta v|| <= tol |theta| for the largest Ritz pair.
        max_steps: the most products to use.
        seed: of the Gaussian start vector.
        both: go on until the smallest Ritz pair has met the tolerance too, relative to
            the spectral radius, since the smallest eigenvalue may well be 0.
        bounded: spend a few more products on error bounds of one percent or less, as
            `ritz.run_lanczos` says. They are valid without it, too.

    Returns:
        An `Extremes`.

    >>> import torch
    >>> from flatgauge.curvature.operator import DenseOperator
    >>> A = DenseOperator(torch.diag(torch.tensor([-5.0, 1.0, 3.0]).double()))
    >>> found = largest_eigenvalue(A, tol=1e-12)
    >>> round(found.value, 12), round(found.smallest, 12), round(found.radius, 12)
    (3.0, -5.0, 5.0)
    """
    check_request(operator, 1, tol, max_steps)
    signs = (1, -1) if both else (1,)
    run = run_lanczos(
        operator,
        signs,
        tol,
        max_steps,
        generator(seed),
        bounded=signs if bounded else (),
    )
    top, bottom = extreme(run, 1, tol), extreme(run, -1, tol)
    status, message = verdict([top], tol, max_steps, [run])
    alphas, betas = run.tridiagonal
    return Extremes(
        value=top.value,
        vector=unravel(
            unit_columns(run.combine(top.coefficients[:, None]))[:, 0], operator.space
        ),
        residual=max(top.residual, top.floor),
        error_bound=distance_beyond(run, top, 1),
        smallest=-bottom.value,
        smallest_residual=max(bottom.residual, bottom.floor),
        smallest_error_bound=distance_beyond(run, bottom, -1),
        smallest_status=verdict([bottom], tol, max_steps)[0],
        status=status,
        message=message,
        products=run.steps,
        alphas=alphas,
        betas=betas,
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

    They are found one at a time, as `deflation.deflate_from` says.

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
    check_request(operator, k, tol, max_steps)
    ends = {"largest": (1,), "smallest": (-1,), "both": (1, -1)}
    if which not in ends:
        raise OptionError(
            f"which={which!r} is not known: choose 'largest', 'smallest' or 'both'."
        )
    random = generator(seed)
    signs, later = ends[which], [1] * (k - 1)
    firsts = first_pairs(
        operator,
        signs,
        inner_tolerance(tol, k),
        max_steps,
        random,
        bounded=signs if k == 1 else (),
        runs=k,
    )
    deflations = [
        deflate_from(operator, first, sign, later, tol, max_steps, random)
        for first, sign in zip(firsts, signs, strict=True)
    ]
    return gather(operator, deflations, tol, max_steps)


def gather(
    operator: SymmetricOperator,
    deflations: list[Deflation],
    tol: float,
    max_steps: int,
) -> Eigenvalues:
    """The pairs of one or two deflations, whose first run is the same, judged together."""
    later = [run.steps for deflation in deflations for run in deflation.runs[1:]]
    steps = [deflations[0].runs[0].steps, *later]
    pairs = [pair for deflation in deflations for pair in deflation.pairs]
    status, message = verdict(pairs, tol, max_steps)
    return Eigenvalues(
        values=[value for deflation in deflations for value in deflation.values],
        vectors=[
            unravel(column, operator.space)
            for deflation in deflations
            for column in deflation.vectors.T.contiguous()
        ],
        residuals=[max(pair.residual, pair.floor) for pair in pairs],
        error_bounds=[
            bound for deflation in deflations for bound in deflation.error_bounds
        ],
        status=status,
        message=message,
        products=sum(steps),
        steps=steps,
    )


def check_request(
    operator: SymmetricOperator, k: int, tol: float, max_steps: int
) -> None:
    """Raise an OptionError if k, tol or max_steps is out of its range."""
    if not 1 <= k <= operator.dimension:
        raise OptionError(
            f"k={k} eigenvalues were asked for, but the operator has "
            f"{operator.dimension}: choose k between 1 and that."
        )
    if not tol > 0 or max_steps < 1:
        raise OptionError(
            f"tol={tol:g} and max_steps={max_steps} were given: both must be positive."
        )
