"""The Fisher-Rao norm, and its diagonal form."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from flatgauge.curvature.jacobian import jacobian_product
from flatgauge.curvature.loss_noise import slope_rounding
from flatgauge.curvature.operator import rounding_of
from flatgauge.data import Batch, cut_length
from flatgauge.diagonals.per_row import (
    rows_apart,
    signed_row_sums,
    squared_row_gradients,
)
from flatgauge.diagonals.per_sample import SquaredGradients
from flatgauge.diagonals.shares import Pull, by_slot
from flatgauge.losses import value_loss
from flatgauge.losses.loss import Rows, ValueLoss
from flatgauge.measures import effort
from flatgauge.measures.curvatures import shown
from flatgauge.measures.options import Count
from flatgauge.measures.registry import Outcome, measure, output_claims
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.memo import once
from flatgauge.results import Status
from flatgauge.shards import joined, number
from flatgauge.solvers.student import standard_error
from flatgauge.vectors import Params, dealt_like
from flatgauge.vocabulary import RENAMINGS, RESCALINGS, Kind

# Roundings of a product that a term of ⟨∇_f ℓ, J θ⟩ may carry: its slope, its change, their
# product and the sum each lose one.
TERM_ROUNDINGS = 4.0
# The relative standard error up to which an estimate is one.
GOOD = 0.1


def _claims(options, loss: str) -> set[Kind]:
    linear = set(Kind) - {Kind.OUTPUT_SCALE}
    claims = {*RESCALINGS, *RENAMINGS} if options["diagonal"] else linear
    return claims | output_claims(options, loss)


@measure(
    name="fisher-rao-norm",
    title="Fisher-Rao norm",
    formula="E⟨θ, ∇ℓ⟩²; with diagonal=True: Σ_i θ_i² E(∂_i ℓ)²",
    reference="Liang et al. 2019; Tsuzuku et al. 2019, equation (25) for the diagonal",
    invariant_to=_claims,
    flatter="smaller",
    cost="about two gradients; the diagonal form one backward for each row of a sample, "
    "or for each probe",
    effort=effort.of_fisher_rao,
    on_shards=True,
)
def fisher_rao_norm(
    work: Workbench,
    *,
    diagonal: bool = False,
    center_output: bool = False,
    exact_rows: Count = 128,
    probes: Count = 30,
) -> Outcome:
    """With the targets of the data (the empirical Fisher matrix).

    Args:
        work: what the measures share.
        diagonal: only the diagonal of the Fisher matrix.
        center_output: for the diagonal form: take the mean over classes out of the
            output layer first.
        exact_rows: for the diagonal form: up to how many rows of a sample (the tokens of
            a sequence) each is differentiated by itself; more are added up with random
            signs.
        probes: how many times signs are drawn.
    """
    loss = value_loss(work.objective.loss, "it needs")
    if work.objective.coupled:
        raise NotApplicable(
            "the samples of a batch influence each other, so that they have no gradients "
            "of their own: use mode='eval' and a network that takes each by itself."
            if _splits(work)
            else "a batch that does not split into samples has none with gradients of their "
            "own: use a named loss, or one that returns one value per sample."
        )
    if diagonal:
        point = work.point(center_output)
        if rows_apart(work.objective) > exact_rows:
            return _estimated(work, loss, point, max(probes, 2))
        squares = _squared_gradients(work, loss)
        layers = {
            name: number((tensor.double().square() * squares[name].double()).sum())
            for name, tensor in point.items()
        }
        value, error = sum(layers.values()), None
    else:
        layers = {}
        value, error = _full(work, loss)
    details = {"layers": layers}
    rounding = slope_rounding(work.objective)
    if rounding:
        error = (error or 0.0) + 2 * rounding * value
    return Outcome(value, Status.EXACT, Status.EXACT.value, error, details)


def _full(work: Workbench, loss: ValueLoss) -> tuple[float, float | None]:
    """E⟨θ, ∇ℓ⟩² = E⟨∇_f ℓ, J θ⟩², and its rounding where the terms of rows cancel.

    Where no rescaling of the outputs changes the loss, they cancel altogether.
    """
    objective = work.objective
    rounding = TERM_ROUNDINGS * rounding_of(objective.dtype)

    def squares(batch: Batch) -> tuple[float, float]:
        point = objective.leaves()
        rows = loss.rows(*objective.evaluate(point, batch))
        change = jacobian_product(rows.outputs, point, objective.parameters)
        terms = _slope(loss, rows).double() * change.double()
        slopes, off = terms.sum(1).abs(), rounding * terms.abs().sum(1)
        error = off * (2 * slopes + off)
        return float(slopes.square().sum()), float(error.sum())

    total, error = objective.sum(squares)
    count = objective.sample_count
    return total / count, shown(error / count, total / count, objective.dtype)


def _estimated(work: Workbench, loss: ValueLoss, point: Params, probes: int) -> Outcome:
    """The diagonal form from sums over rows with random signs."""
    whole = work.objective.whole()
    here = {name: joined(tensor) for name, tensor in point.items()}
    draws = signed_row_sums(whole, loss, here, probes, work.seed).cpu()
    value = float(draws.sum(1).mean())
    error = float(standard_error(draws.sum(1).numpy()))
    layers = dict(zip(point, draws.mean(0).tolist(), strict=True))
    good = error <= GOOD * value
    status = Status.ESTIMATED if good else Status.NOT_CONVERGED
    message = (
        f"The mean of {probes} sums over rows with random signs, without bias; two "
        "standard errors hold in about 95 %."
    )
    if not good:
        message += " The standard error is more than a tenth: raise probes=."
    return Outcome(value, status, message, error, {"layers": layers, "probes": probes})


@once
def _squared_gradients(work: Workbench, loss: ValueLoss) -> Params:
    """E(∂_i ℓ)² for every parameter."""
    whole, space = work.objective.whole(), work.objective.parameters

    if not _splits(work):
        return dealt_like(squared_row_gradients(whole, loss), space)

    def pulls(rows: Rows) -> Iterator[Pull]:
        slope = _slope(loss, rows)
        return by_slot(rows, slope[:, :, None], torch.ones_like(slope[:, :1]))

    squares = SquaredGradients(whole, loss=loss, signed=False)
    return dealt_like(squares.mean(pulls), space)


def _splits(work: Workbench) -> bool:
    """Whether every batch can be cut into samples."""
    return None not in work.objective.each(cut_length)


def _slope(loss: ValueLoss, rows: Rows) -> Tensor:
    """∂ℓ/∂f of each row."""
    free = rows.outputs.detach().requires_grad_()
    total = loss.values(Rows(free, rows.targets, rows.samples)).sum()
    return torch.autograd.grad(total, free)[0]
