"""Sharpness in units that no rescaling of nodes can change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.deadline import OutOfTime
from flatgauge.measures import effort
from flatgauge.measures.curvatures import Curvature
from flatgauge.measures.options import Count, DiagonalOf, Positive, Surrogate
from flatgauge.measures.registry import Outcome, measure, output_claims
from flatgauge.measures.workbench import Workbench
from flatgauge.results import Status
from flatgauge.shards import number
from flatgauge.solvers.balancing import Balancing, problems_of
from flatgauge.solvers.balancing_together import Problem, balance_together
from flatgauge.vectors import Params
from flatgauge.vocabulary import RENAMINGS, RESCALINGS, Kind

# The certified relative gaps that are asked for unless one is given.
LEAST_GAP = 1e-12
MOST_GAP = 1e-4


def _claims(options, loss: str) -> set[Kind]:
    claims = {*RESCALINGS, *RENAMINGS, Kind.BRANCH_SPLIT}
    return claims | output_claims(options, loss)


@measure(
    name="normalized-sharpness",
    title="Normalized sharpness",
    formula="Σ_l inf_{σ,σ'} Σ_ij h_ij (σ_i σ'_j)² + W_ij² / (σ_i σ'_j)², h = diag ∇²L ≥ 0",
    reference="Tsuzuku et al. 2019, equation (17) at λ = 1/2",
    invariant_to=_claims,
    flatter="smaller",
    cost="one diagonal of the Hessian, then a convex problem a matrix",
    effort=effort.of_balancing,
    on_shards=True,
)
def normalized_sharpness(
    work: Workbench,
    *,
    lam: Positive = 0.5,
    surrogate: Surrogate = "auto",
    curvature: DiagonalOf = "hessian",
    probes: Count = 30,
    tol: Positive | None = None,
    center_output: bool = False,
    scales: bool = False,
) -> Outcome:
    """Over the parameters that are used as matrices; the others are named.

    Negative curvatures are clipped at 0, then kernel positions are summed. Each matrix
    that a parameter is used as is a problem of its own: slices, experts of a stack,
    groups of a convolution, and query, key and value of a fused projection. The details
    give each layer's share, and the lower bound 2 Σ |W| √h.

    Args:
        work: what the measures share.
        lam: λ; the value scales as 1/√(2λ).
        surrogate: "auto" (the normalized cross-entropy for three classes or more) or
            "objective".
        curvature: "hessian", or "ggn" for the Gauss-Newton diagonal.
        probes: random vectors, where the diagonal must be estimated.
        tol: the certified relative gap of the convex problems; unless given, 1e-12 where
            the diagonal is exact, and 1 % of its relative standard error where it is
            estimated, but no more than 1e-4.
        center_output: take the mean over classes out of the output layer first.
        scales: also give ln σ² and ln σ'² of every layer in the details.
    """
    matrices, note = work.matrices(), work.uses().note
    objective = work.surrogate(surrogate)
    loss = objective.loss.name
    with deadline.part(0.5):
        diagonal = work.diagonal(objective, curvature, probes)
    point = work.point(center_output)
    factor = 1 / math.sqrt(2 * lam)
    gap = _gap_worth_closing(diagonal, point, matrices) if tol is None else tol

    def solve(diagonals: Sequence[Params]) -> list[dict[str, list[Balancing]]]:
        counts: list[int] = []

        def problems() -> Iterator[Problem]:
            # One by one: together, in float64, they would be as large as several models.
            for h in diagonals:
                for name, matrix in matrices.items():
                    some = problems_of(matrix, h[name], point[name])
                    counts.append(len(some))
                    yield from some

        found, sizes = iter(balance_together(problems(), gap)), iter(counts)
        return [
            {name: list(islice(found, next(sizes))) for name in matrices}
            for _ in diagonals
        ]

    lower = {n: factor * _elementwise(diagonal.mean[n], point[n]) for n in matrices}
    try:
        (solved,) = solve([diagonal.mean])
    except OutOfTime as stop:
        message = stop.after("before the convex problems were solved")
        found = {"elementwise": sum(lower.values()), "elementwise_layers": lower}
        return Outcome(None, Status.NOT_CONVERGED, message, None, found, loss)
    deadline.usable()
    layers = {n: factor * sum(p.value for p in parts) for n, parts in solved.items()}

    def totals(diagonals: Sequence[Params]) -> list[float]:
        known = len(diagonals) == 1 and diagonals[0] is diagonal.mean
        every = [solved] if known else solve(diagonals)
        return [
            factor * sum(p.value for parts in found.values() for p in parts)
            for found in every
        ]

    stopped = ""
    try:
        value, error = diagonal.evaluate_together(totals)
    except OutOfTime as stop:
        value = sum(layers.values())
        error = value * _relative_error(diagonal, point, matrices)
        stopped = stop.after("before its error was known, which is that of 2 Σ |W| √h")
    details: dict[str, Any] = {
        "layers": layers,
        "elementwise": sum(lower.values()),
        "elementwise_layers": lower,
        "gap": max(part.gap for parts in solved.values() for part in parts),
        "not_attained": [
            n for n, ps in solved.items() if not all(p.attained for p in ps)
        ],
        "left_out": [name for name in point if name not in matrices],
        "not_expressible": work.uses().mixed,
        "method": diagonal.method,
    }
    if scales:
        details["log_row_scales"] = {
            n: [p.row_scale for p in ps] for n, ps in solved.items()
        }
        details["log_column_scales"] = {
            n: [p.column_scale for p in ps] for n, ps in solved.items()
        }
    unsolved = [
        (name, part)
        for name, parts in solved.items()
        for part in parts
        if not part.status.trusted
    ]
    if unsolved:
        name, part = unsolved[0]
        message = f"the problem of '{name}' did not reach its gap: {part.message}"
        return Outcome(value, Status.NOT_CONVERGED, message, error, details, loss)
    if stopped:
        return Outcome(value, Status.NOT_CONVERGED, stopped, error, details, loss)
    message = f"{diagonal.message} {note}".strip()
    return Outcome(value, diagonal.status, message, error, details, loss)


def _gap_worth_closing(
    diagonal: Curvature, point: Params, names: Iterable[str]
) -> float:
    """1 % of the relative standard error that the diagonal gives the elementwise bound."""
    if not diagonal.replicates:
        return LEAST_GAP
    error = _relative_error(diagonal, point, names)
    return min(max(0.01 * error, LEAST_GAP), MOST_GAP)


def _relative_error(diagonal: Curvature, point: Params, names: Iterable[str]) -> float:
    """The relative standard error of the elementwise bound."""
    value, error = diagonal.evaluate(
        lambda h: sum(_elementwise(h[name], point[name]) for name in names)
    )
    return error / value if error and value else 0.0


def _elementwise(h: Tensor, weight: Tensor) -> float:
    """2 Σ |W| √h over all entries (Tsuzuku et al. 2019, section 7.2)."""
    roots = torch.sqrt(h.double().clamp_min(0))
    return 2 * number((weight.double().abs() * roots).sum())
