"""Several eigenvalues at one end, by one deflated Lanczos run for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator, rounding_of
from flatgauge.shapes import Float
from flatgauge.solvers.certificate import DELTA
from flatgauge.solvers.density import RunSummary
from flatgauge.solvers.inner import combination, inner_products, norm
from flatgauge.solvers.krylov import Lanczos
from flatgauge.solvers.ritz import (
    ExtremePair,
    distance_beyond,
    extreme,
    measure_of,
    run_lanczos,
    spectral_radius,
)


@dataclass(frozen=True)
class Pair:
    """One extreme Ritz pair, and what is kept of its run when the basis is let go.

    For the smallest eigenvalue all numbers are those of the negated operator.

    Attributes:
        value: the largest Ritz value theta.
        vector: its unit Ritz vector v.
        residual: A v - theta v, in the complement of the vectors deflated before.
        ceiling: what the operator on that complement cannot exceed, with probability
            1 - `certificate.DELTA` for all the runs of a deflation together.
        radius: the largest magnitude of an eigenvalue known so far.
        rounding: the relative rounding error of a product.
        run: the run's tridiagonal matrix, of A itself.
    """

    value: float
    vector: Float[Tensor, " n"]
    residual: Float[Tensor, " n"]
    ceiling: float
    radius: float
    rounding: float
    run: RunSummary


@dataclass(frozen=True)
class Deflation:
    """The Ritz pairs at one end of the spectrum, best first.

    Attributes:
        values: the Ritz values.
        vectors: the unit Ritz vectors, as columns.
        pairs: the same with their residuals; negated for the smallest.
        error_bounds: of the values, as in `deflate_from`.
        runs: what the runs leave, the first included.
    """

    values: list[float]
    vectors: Float[Tensor, "n k"]
    pairs: list[ExtremePair]
    error_bounds: list[float]
    runs: list[RunSummary]


def first_pairs(
    operator: SymmetricOperator,
    signs: Sequence[int],
    tol: float,
    max_steps: int,
    random: torch.Generator,
    least_steps: int = 1,
    bounded: Sequence[int] = (),
    runs: int = 1,
) -> list[Pair]:
    """The extreme pairs named by `signs`, all from one run without deflation.

    A few more steps are spent on the error bounds of the ends in `bounded`; `runs` is the
    number of runs in the longest deflation that it is the first of.
    """
    delta = DELTA / runs
    run = run_lanczos(
        operator,
        signs,
        tol,
        max_steps,
        random,
        least_steps=least_steps,
        bounded=bounded,
        delta=delta,
    )
    return [_pair(run, sign, tol, delta) for sign in signs]


def deflate_from(
    operator: SymmetricOperator,
    first: Pair,
    sign: int,
    least_steps: Sequence[int],
    tol: float,
    max_steps: int,
    random: torch.Generator,
) -> Deflation:
    """The largest (sign 1) or smallest (-1) eigenvalues, counted with multiplicity.

    Each is found by a Lanczos run with its own random start in the orthogonal complement
    of the Ritz vectors found before, so that equal and nearly equal eigenvalues are
    counted. At the end the operator is diagonalized on the span of the k vectors;
    V^T A V is known from the residuals, so that this costs no product.

    The error bounds need no gap. For the values mu_1 >= ... >= mu_k of V^T A V Cauchy's
    interlacing gives lambda_i >= mu_i, and `ceilings_of` bounds lambda_i from above by what
    the deflated operators cannot exceed. Since the bound of one run serves the values
    found before it, only the last run takes more steps than its value needs. All k bounds
    hold at once with probability 1 - DELTA, of which each run may fail with DELTA / k.

    Args:
        operator: the symmetric operator A.
        first: the first of them, settled to `inner_tolerance`, in a deflation of k runs.
        sign: which end.
        least_steps: the fewest steps of each later run, one for each further value.
        tol: on the residuals, as in `lanczos.eigenvalues`.
        max_steps: the most products of each run.
        random: for the start vectors.

    Returns:
        A `Deflation`.
    """
    runs = 1 + len(least_steps)
    inner, delta = inner_tolerance(tol, runs), DELTA / runs
    pairs = [first]
    for least in least_steps:
        run = run_lanczos(
            operator,
            (sign,),
            inner,
            max_steps,
            random,
            # The transpose of rows, which a run holds without another copy.
            torch.stack([pair.vector for pair in pairs]).T,
            pairs[-1].radius,
            least,
            bounded=(sign,) if len(pairs) + 1 == runs else (),
            delta=delta,
        )
        values = [sign * pair.value for pair in pairs]
        pairs.append(_pair(run, sign, inner, delta, values))
        # A basis is by far the largest thing here: only one is held at a time.
        del run
    return _diagonalized(pairs, sign, tol)


def inner_tolerance(tol: float, k: int) -> float:
    """What each of k runs must reach, since mixing k pairs can add up residuals."""
    return tol if k == 1 else tol / 2


def unit_columns(columns: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """The columns divided by their norms, which are taken in float64."""
    norms = torch.stack([norm(column) for column in columns.T])
    return columns / norms.to(columns.dtype)


def ceilings_of(
    small: np.ndarray, gram: np.ndarray, ceilings: Sequence[float]
) -> np.ndarray:
    r"""What the k largest eigenvalues of A cannot exceed.

    Write A in the span of the first p vectors V and its complement. If c bounds A on the
    complement, then

        A = [ V^T A V   R^T ]  <=  [ M   R^T ]
            [ R         A_p ]      [ R   c I ],     M = V^T A V,

    and by Weyl's monotonicity lambda_i(A) is at most the i-th eigenvalue of the right
    matrix. On the complement, of codimension p, that matrix is c, so that only its first
    p eigenvalues can exceed c; they are those of M bordered by a square root of R^T R.
    Where c lies below lambda_i the bound is of second order in the residuals. The least
    bound over p = 0 ... k - 1 is returned; p = 0 is the first ceiling itself.

    Args:
        small: V^T A V for all k vectors.
        gram: the inner products of the residuals, the j-th of which is orthogonal to the
            vectors up to the j-th, but not to the later ones.
        ceilings: the bound of A on the complement of the first p vectors, for each p.

    >>> import numpy as np
    >>> ceilings_of(np.diag([2.0, 1.0]), np.diag([0.01, 0.0]), [2.5, 1.0]).round(3)
    array([2.01, 1.  ])
    """
    best = np.full(len(small), ceilings[0])
    for p in range(1, len(small)):
        inside, beside = small[:p, :p], np.tril(small[:p, :p], -1)
        # What is left of a residual outside the later vectors; rounding may leave less
        # than nothing.
        left = gram[:p, :p] - beside.T @ beside
        sizes, axes = np.linalg.eigh(left)
        root = (axes * np.sqrt(np.maximum(sizes, 0.0))) @ axes.T
        bordered = np.block([[inside, root], [root, ceilings[p] * np.eye(p)]])
        exceeding = np.maximum(np.linalg.eigvalsh(bordered)[::-1][:p], ceilings[p])
        bounds = np.append(exceeding, np.full(len(small) - p, ceilings[p]))
        best = np.minimum(best, bounds)
    return best


def _pair(
    run: Lanczos,
    sign: int,
    tol: float,
    delta: float,
    deflated_values: Sequence[float] = (),
) -> Pair:
    best = extreme(run, sign, tol)
    return Pair(
        value=best.value,
        vector=unit_columns(run.combine(best.coefficients[:, None]))[:, 0],
        residual=sign * run.residual(best.coefficients),
        ceiling=best.value + distance_beyond(run, best, sign, delta),
        radius=spectral_radius(run),
        rounding=run.rounding,
        run=RunSummary.of(run, deflated_values),
    )


def _diagonalized(pairs: list[Pair], sign: int, tol: float) -> Deflation:
    basis = torch.stack([pair.vector for pair in pairs], dim=1)
    rest = torch.stack([pair.residual for pair in pairs], dim=1)
    # (V^T A V)_ij = <v_i, s_j> for i > j, where s_j is the residual of v_j in the
    # complement of v_1 ... v_{j-1}; what is left of s_j outside V is the true residual.
    overlaps = inner_products(basis.T, rest.T)
    beside = np.tril(overlaps.cpu().numpy(), -1)
    small = beside + beside.T + np.diag([pair.value for pair in pairs])
    values, mixing = np.linalg.eigh(small)
    values, mixing = values[::-1], mixing[:, ::-1].copy()
    mix = torch.as_tensor(mixing, dtype=basis.dtype, device=basis.device)
    outside = rest - combination(overlaps.T, basis.T).T
    outside = combination(mix.T, outside.T).T
    norms = torch.stack([norm(column) for column in outside.T]).tolist()
    radius = pairs[-1].radius
    floor = pairs[-1].rounding * radius
    mixed = [
        ExtremePair(
            value,
            mixing,
            norm,
            allowed=tol * measure_of(value, sign, radius),
            floor=floor,
            finest=rounding_of(basis.dtype) * radius,
        )
        for value, norm in zip(values.tolist(), norms, strict=True)
    ]
    gram = inner_products(rest.T, rest.T).cpu().numpy()
    above = ceilings_of(small, gram, [pair.ceiling for pair in pairs])
    return Deflation(
        values=[sign * pair.value for pair in mixed],
        vectors=unit_columns(combination(mix.T, basis.T).T),
        pairs=mixed,
        error_bounds=np.maximum(above - values, floor).tolist(),
        runs=[pair.run for pair in pairs],
    )
