"""The largest rise of the loss within a ball around the point."""

from __future__ import annotations

from typing import Annotated

from flatgauge import deadline
from flatgauge.data import Batch
from flatgauge.geometry.metric import resolve_metric
from flatgauge.measures import effort
from flatgauge.measures.options import Count, Positive, Share, at_least
from flatgauge.measures.registry import Outcome, measure
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.objective import Objective
from flatgauge.results import Status
from flatgauge.solvers.ascent import Ascent, Function, maximize_on_ball
from flatgauge.solvers.lanczos import MAX_STEPS
from flatgauge.vectors import (
    Params,
    add,
    gradient_of,
    multiply,
    norm,
    scale,
)
from flatgauge.vocabulary import RENAMINGS, Kind


@measure(
    name="epsilon-sharpness",
    title="ε-sharpness",
    formula="max over ‖d‖ ≤ ε of (L(θ+d) − L(θ)) / (1 + L(θ))",
    reference="Keskar et al. 2017; Dinh et al. 2017, Definition 2",
    invariant_to=lambda options, loss: {*RENAMINGS, Kind.ABSORBED_SHIFT},
    flatter="smaller",
    cost="about a hundred gradients",
    effort=effort.of_ball,
)
def epsilon_sharpness(
    work: Workbench,
    *,
    epsilon: Positive = 1e-3,
    restarts: Annotated[int, at_least(0)] = 2,
    tol: Share = 1e-6,
    steps: Count = 500,
) -> Outcome:
    """The best of several climbs; details: λmax ε²/(2(1+L)) as "quadratic".

    The value is a lower bound of the maximum, and its uncertainty the rounding of the
    loss, not the distance to the maximum. How far apart the climbs ended is in the
    details as "bound_spread", and differences below it are not taken for real.

    Args:
        work: what the measures share.
        epsilon: the radius of the ball.
        restarts: random starts, besides ± the top eigenvector and the gradient.
        tol: the relative projected gradient at which a climb ends, and the relative
            residual of the eigenvalue.
        steps: the most steps of one climb.
    """
    point = work.objective.parameters
    return ball_outcome(work, "euclidean", point, epsilon, restarts, tol, steps)


def ball_outcome(
    work: Workbench,
    metric: str,
    point: Params,
    epsilon: float,
    restarts: int,
    tol: float,
    steps: int,
) -> Outcome:
    """Max over |η| <= ε of (L(θ + S η) − L(θ)) / (1 + L(θ)), S taken at `point`."""
    objective = work.objective
    place = None if point is objective.parameters else point
    with deadline.part(0.5):
        top = work.extremes(
            objective, metric, point=place, tol=tol, max_steps=MAX_STEPS
        )
    scales = resolve_metric(metric).scales(point)
    found = maximize_on_ball(
        loss_on_ball(objective, scales),
        objective.parameters,
        epsilon,
        starts=[top.vector, scale(top.vector, -1.0)],
        restarts=restarts,
        tol=tol,
        steps=steps,
        seed=work.seed,
        # The random starts follow the units, not their numbers. Rescaled node by node,
        # entries change their order, but not their whitened slopes.
        order=multiply(scales, work.gradient(objective)) if metric == "node" else point,
    )
    unit = 1 + found.center
    if unit <= 0:
        raise NotApplicable(
            f"the loss is {found.center:.6g}: the quotient by 1 + L(θ) is for losses "
            "that are not negative."
        )
    rounding = found.rounding / unit
    value = (found.value - found.center) / unit
    status, message = _with_rounding(found, value, rounding)
    ends = [climb.value for climb in found.climbs if climb.converged]
    share = norm(found.point).clamp_min(1e-300) ** 2
    details = {
        "bound": "lower",
        "bound_spread": (found.value - min(ends, default=found.center)) / unit,
        "quadratic": top.value * epsilon**2 / (2 * unit),
        "quadratic_status": top.status,
        "linear": epsilon * float(norm(found.center_gradient)) / unit,
        "loss_value": found.center,
        "largest_loss": found.value,
        "losses": [climb.value for climb in found.climbs],
        "stationarity": [climb.stationarity for climb in found.climbs],
        "steps": [climb.steps for climb in found.climbs],
        "distance": float(norm(found.point)),
        "evaluations": found.evaluations,
        "layers": {
            name: float(part.double().square().sum() / share)
            for name, part in found.point.items()
        },
    }
    return Outcome(value, status, message, rounding, details)


def loss_on_ball(objective: Objective, scales: Params) -> Function:
    """η ↦ L(θ + S η) and its gradient S ∇L."""

    def evaluate(eta: Params) -> tuple[float, Params]:
        moved = objective.at(add(objective.parameters, multiply(eta, scales)))

        def loss_and_slope(batch: Batch) -> tuple[float, Params]:
            leaves = moved.leaves()
            loss = moved.batch_total(leaves, batch)
            return float(loss.detach()), gradient_of(loss, leaves)

        total, slope = moved.sum(loss_and_slope)
        count = moved.sample_count
        return total / count, scale(multiply(slope, scales), 1 / count)

    return evaluate


def _with_rounding(found: Ascent, value: float, rounding: float) -> tuple[Status, str]:
    """The verdict, unless the rise drowns in the rounding of the loss."""
    if (
        found.stopped
        or value > 10 * rounding
        or float(norm(found.center_gradient)) == value == 0
    ):
        return found.status, found.message
    return (
        Status.NOT_CONVERGED,
        f"the loss rises by {value:.1e}, which rounding of {rounding:.1e} hides: raise "
        "epsilon=, or measure in dtype=torch.float64.",
    )
