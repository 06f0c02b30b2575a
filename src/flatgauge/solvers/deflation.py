"""Several eigenvalues at one end, by one deflated Lanczos run for each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator, rounding_of
from flatgauge.shapes import Float
from flatgauge.solvers.density import RunRecord
from flatgauge.solvers.inner import combination, inner_products
from flatgauge.solvers.krylov import Lanczos
from flatgauge.solvers.ritz import (
    End,
    distance_beyond,
    extreme,
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
            1 - `certificate.DELTA`.
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
    run: RunRecord


@dataclass(frozen=True)
class Chain:
    """The Ritz pairs at one end of the spectrum, best first.

    Attributes:
        values: the Ritz values.
        vectors: the unit Ritz vectors, as columns.
        ends: the same pairs with their residuals; negated for the smallest.
        error_bounds: of the values, as in `chain_from`.
        runs: what the runs leave, the first included.
    """

    values: list[float]
    vectors: Float[Tensor, "n k"]
    ends: list[End]
    error_bounds: list[float]
    runs: list[RunRecord]


def first_pairs(
    operator: SymmetricOperator,
    signs: Sequence[int],
    tol: float,
    max_steps: int,
    random: torch.Generator,
    least_steps: int = 1,
) -> list[Pair]:
    """The extreme pairs named by `signs`, all from one run without deflation."""
    run = run_lanczos(operator, signs, tol, max_steps, random, least_steps=least_steps)
    return [_pair(run, sign, tol) for sign in signs]


def chain_from(
    operator: SymmetricOperator,
    first: Pair,
    sign: int,
    least_steps: Sequence[int],
    tol: float,
    max_steps: int,
    random: torch.Generator,
) -> Chain:
    """The largest (sign 1) or smallest (-1) eigenvalues, counted with multiplicity.

    Each is found by a Lanczos run with its own random start in the orthogonal complement
    of the Ritz vectors found before, so that equal and nearly equal eigenvalues are
    counted. At the end the operator is diagonalized on the span of the k vectors;
    V^T A V is known from the residuals, so that this costs no product.

    The error bounds need no gap. For the values mu_1 >= ... >= mu_k of V^T A V Cauchy's
    interlacing gives lambda_i >= mu_i; the minimax principle gives
    lambda_j <= lambda_max of the j-th deflated operator, which is bounded as in
    `certificate.distance_above`; and lambda_i <= lambda_j for j <= i.

    Args:
        operator: the symmetric operator A.
        first: the first of them, settled to `inner_tolerance`.
        sign: which end.
        least_steps: the fewest steps of each later run, one for each further value.
        tol: on the residuals, as in `lanczos.eigenvalues`.
        max_steps: the most products of each run.
        random: for the start vectors.

    Returns:
        A `Chain`.
    """
    inner = inner_tolerance(tol, 1 + len(least_steps))
    pairs = [first]
    for least in least_steps:
        run = run_lanczos(
            operator,
            (sign,),
            inner,
            max_steps,
            random,
            torch.stack([pair.vector for pair in pairs], dim=1),
            pairs[-1].radius,
            least,
        )
        pairs.append(_pair(run, sign, inner, [sign * pair.value for pair in pairs]))
        # A basis is by far the largest thing here: only one is held at a time.
        del run
    return _diagonalized(pairs, sign, tol)


def inner_tolerance(tol: float, k: int) -> float:
    """What each of k runs must reach, since mixing k pairs can add up residuals."""
    return tol if k == 1 else tol / 2


def unit_columns(columns: Float[Tensor, "n k"]) -> Float[Tensor, "n k"]:
    """The columns divided by their norms, which are taken in float64."""
    return (columns / columns.double().norm(dim=0)).to(columns.dtype)


def _pair(
    run: Lanczos, sign: int, tol: float, deflated_values: Sequence[float] = ()
) -> Pair:
    end = extreme(run, sign, tol)
    return Pair(
        value=end.value,
        vector=unit_columns(run.combine(end.coefficients[:, None]))[:, 0],
        residual=sign * run.residual(end.coefficients),
        ceiling=end.value + distance_beyond(run, end, sign),
        radius=spectral_radius(run),
        rounding=run.rounding,
        run=RunRecord.of(run, deflated_values),
    )


def _diagonalized(pairs: list[Pair], sign: int, tol: float) -> Chain:
    basis = torch.stack([pair.vector for pair in pairs], dim=1)
    rest = torch.stack([pair.residual for pair in pairs], dim=1)
    # (V^T A V)_ij = <v_i, s_j> for i > j, where s_j is the residual of v_j in the
    # complement of v_1 ... v_{j-1}; what is left of s_j outside V is the true residual.
    overlaps = inner_products(basis.T, rest.T)
    small = np.tril(overlaps.cpu().numpy(), -1)
    diagonal = np.diag([pair.value for pair in pairs])
    values, mixing = np.linalg.eigh(small + small.T + diagonal)
    values, mixing = values[::-1], mixing[:, ::-1].copy()
    mix = torch.as_tensor(mixing, dtype=basis.dtype, device=basis.device)
    outside = rest - combination(overlaps.T, basis.T).T
    outside = combination(mix.T, outside.T).T
    norms = outside.double().norm(dim=0).tolist()
    radius = pairs[-1].radius
    floor = pairs[-1].rounding * radius
    ends = [
        End(
            value,
            mixing,
            norm,
            allowed=tol * (abs(value) if sign > 0 else radius),
            floor=floor,
            finest=rounding_of(basis.dtype) * radius,
        )
        for value, norm in zip(values.tolist(), norms, strict=True)
    ]
    lowest = np.minimum.accumulate(np.array([pair.ceiling for pair in pairs]))
    return Chain(
        values=[sign * end.value for end in ends],
        vectors=unit_columns(combination(mix.T, basis.T).T),
        ends=ends,
        error_bounds=np.maximum(lowest - values, floor).tolist(),
        runs=[pair.run for pair in pairs],
    )
