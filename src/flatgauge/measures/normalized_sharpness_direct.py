"""Normalized sharpness without the second-order approximation."""

from __future__ import annotations

import math
from typing import Annotated

from flatgauge import deadline
from flatgauge.errors import LossError
from flatgauge.measures import effort
from flatgauge.measures.options import Count, DiagonalOf, Positive, Surrogate, at_least
from flatgauge.measures.registry import Outcome, measure, output_claims
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.results import Status
from flatgauge.solvers.noise_scales import Evaluation, NoiseScales
from flatgauge.solvers.posterior import matrix_posteriors
from flatgauge.vocabulary import RENAMINGS, RESCALINGS, Kind

# The relative decrease that may be left, and the relative standard error to reach.
LEFT = 0.01
TARGET = 0.05
# How far the loss's slope may be from the penalty's, relative to the latter.
IMBALANCE = 0.5
# The largest variance to start from, in units of the mean squared weight. Units that are
# off have no curvature but wake up under more noise, and the descent has a long way back.
CAP = 1.0


def _claims(options, loss: str) -> set[Kind]:
    return {*RESCALINGS, *RENAMINGS} | output_claims(options, loss)


@measure(
    name="normalized-sharpness-direct",
    title="Normalized sharpness, without approximation",
    formula="min_{σ,σ'} E L(θ + σσ'ε) − L(θ) + Σ W² / (2λ (σσ')²), ε ~ N(0, I)",
    reference="Tsuzuku et al. 2019, equation (62)",
    invariant_to=_claims,
    flatter="smaller",
    cost="one diagonal of the Hessian, then 4 gradients a step and one a draw",
    effort=effort.of_descent,
)
def normalized_sharpness_direct(
    work: Workbench,
    *,
    lam: Positive = 0.5,
    surrogate: Surrogate = "auto",
    steps: Count = 200,
    draws: Annotated[int, at_least(4)] = 200,
    curvature: DiagonalOf = "hessian",
    probes: Count = 30,
) -> Outcome:
    """Stochastic descent in ln σ and ln σ' from the optimum of the approximation.

    Where that has more noise than the weights are large, it starts from as much. A step
    changes ln σ² by 0.1 at most, less and less towards the end.

    The value is a local minimum, estimated with fresh draws. It counts as converged if
    three things hold there, in units of the value (or of the penalty, if that is
    larger): the decrease that is left, ½ Σ g²/Γ with g the slope in a log scale and Γ
    its curvature for a quadratic loss, exceeds 1 % by no more than its own noise; the
    standard error is at most 5 %; and the loss's slope in a common scale of all noise
    is within half of the penalty, to which it is equal at a minimum. A bounded loss,
    such as the normalized cross-entropy, fails the last for small λ: there the noise
    grows without end.

    Rescaled networks see the same rescaled draws; permuted ones see others, so that
    they agree within standard errors. Unlike (17), (62) can order networks differently
    for different λ: the details give the value of these scales at λ/2 and 2λ (upper
    bounds of the minimum there), and what the second-order approximation predicts,
    NS0 / (2√λ), which is exact for quadratic losses.

    Args:
        work: what the measures share.
        lam: λ; the smaller, the larger the noise.
        surrogate: "auto" (the normalized cross-entropy for three classes or more) or
            "objective".
        steps: of the descent, with two antithetic pairs of draws each.
        draws: for the value, in antithetic pairs.
        curvature: "hessian", or "ggn" for the Gauss-Newton diagonal, to start from.
        probes: random vectors, where that diagonal must be estimated.
    """
    matrices = work.matrices()
    objective = work.surrogate(surrogate)
    loss = objective.loss.name
    with deadline.part(0.4):
        diagonal = work.diagonal(objective, curvature, probes)
    solved = {
        name: matrix_posteriors(matrix, diagonal.mean[name], objective.parameters[name])
        for name, matrix in matrices.items()
    }
    parts = [part for several in solved.values() for part in several]
    start = [log for part in parts for log in part.log_scales(lam, CAP)]
    noisy = NoiseScales(objective, matrices, lam)
    try:
        with deadline.part(0.6):
            logs = noisy.descend(start, steps, 2 * work.seed)
        found = noisy.evaluate(logs, draws // 2, 2 * work.seed + 1)
    except LossError as error:
        raise NotApplicable(
            f"the loss is not defined everywhere around the weights: {error}"
        ) from error
    value, penalty = found.rise + found.penalty, found.penalty
    predicted = sum(part.solved.value for part in parts)
    details = {
        "loss_rise": found.rise,
        "penalty": penalty,
        "layers_penalty": found.layers,
        "half_lambda": found.rise + 2 * penalty,
        "double_lambda": found.rise + penalty / 2,
        "lambda_exponent": -penalty / value if value else 0.0,
        "second_order": predicted / (2 * math.sqrt(lam)),
        "decrease_left": found.left,
        "imbalance": found.imbalance,
        "left_out": [n for n in objective.parameters if n not in matrices],
        "not_expressible": work.uses().mixed,
        "method": diagonal.method,
    }
    if noisy.stopped is not None:
        # The draws tell nothing of what the descent had still to gain.
        message = noisy.stopped.after("in the descent, above its end")
        return Outcome(value, Status.NOT_CONVERGED, message, None, details, loss)
    status, message = _verdict(found, value)
    return Outcome(value, status, message, found.error, details, loss)


def _verdict(found: Evaluation, value: float) -> tuple[Status, str]:
    """Whether the value is a minimum, and known well enough."""
    size = max(abs(value), found.penalty)
    if found.stopped is not None:
        message = found.stopped.after("among the draws for the value")
    elif found.imbalance > IMBALANCE:
        message = (
            "The noise is not in balance with its penalty: raise steps, or raise lam, "
            "since a bounded loss has no minimum near the weights for small λ."
        )
    elif found.left - found.left_error > LEFT * size:
        message = (
            f"About {found.left:.2g} of {value:.4g} may still be gained: raise steps."
        )
    elif found.error > TARGET * size:
        message = f"The standard error is {found.error:.2g}: raise draws."
    else:
        return Status.ESTIMATED, Status.ESTIMATED.value
    return Status.NOT_CONVERGED, message
