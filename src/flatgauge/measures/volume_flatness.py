"""The volume of the flat region around the point, and why it is infinite."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch

from flatgauge.errors import FlatgaugeError, NonFiniteError
from flatgauge.measures import effort
from flatgauge.measures.options import Positive, at_least
from flatgauge.measures.registry import Outcome, measure
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.objective import Objective
from flatgauge.solvers.orbit import inscribed_box, orbit_sum
from flatgauge.solvers.volume import Loss, log_ball_volume, star_volume
from flatgauge.vectors import Params, add, map_tensors, norm, ravel, scale, size
from flatgauge.vocabulary import RENAMINGS, Kind

POINTS = 64


@measure(
    name="volume-flatness",
    title="Volume ε-flatness",
    formula="ln vol of the star-shaped part of {L < L(θ) + ε} in a ball of radius R",
    reference="Hochreiter and Schmidhuber 1997; Dinh et al. 2017, Definition 1",
    invariant_to=lambda options, loss: {*RENAMINGS},
    flatter="larger",
    cost="about 30 losses for each direction",
    effort=effort.of_volume,
)
def volume_flatness(
    work: Workbench,
    *,
    epsilon: Positive = 0.02,
    radius: Positive | None = None,
    directions: Annotated[int, at_least(2)] = 100,
    tol: Positive = 1e-3,
) -> Outcome:
    """A lower bound in a stated ball; details: the sum over an orbit, without bound.

    The whole set has infinite volume wherever the network has a rescaling symmetry:
    `orbit_sum` in the details lists (number of images, log of their total volume) for
    disjoint images of one box under powers of a rescaling of whole tensors.

    Args:
        work: what the measures share.
        epsilon: how far the loss may rise.
        radius: of the ball R; ‖θ‖ if None.
        directions: the number of rays.
        tol: the most that a bisection may take off the log-volume.
    """
    objective = work.objective
    point = objective.parameters
    ball = float(norm(point)) if radius is None else float(radius)
    if ball == 0:
        raise NotApplicable("all parameters are 0, so ‖θ‖ is no radius: give radius=.")
    loss = loss_of_displacement(objective)
    level = objective.value() + epsilon
    if level <= objective.value():
        raise NotApplicable(
            f"epsilon={epsilon:g} is lost in the rounding of the loss "
            f"{objective.value():.6g}: raise epsilon=."
        )
    found = star_volume(
        loss,
        point,
        level,
        ball,
        directions=directions,
        tol=tol,
        seed=work.seed,
        order=point,
    )
    details = {
        "epsilon": epsilon,
        "radius": ball,
        "dimension": size(point),
        "log_ball_volume": log_ball_volume(size(point), ball),
        "smallest_exit": min(found.exits),
        "median_exit": float(torch.tensor(found.exits).median()),
        "largest_exit": max(found.exits),
        "capped": found.capped,
        "effective_directions": found.effective_directions,
        "evaluations": found.evaluations,
        **_orbit(work, loss, level, min(found.exits)),
    }
    return Outcome(
        found.log_volume, found.status, found.message, found.standard_error, details
    )


def loss_of_displacement(objective: Objective) -> Loss:
    """D ↦ L(θ + d), infinite where the loss is not finite."""

    def loss(displacement: Params) -> float:
        try:
            return objective.at(add(objective.parameters, displacement)).value()
        except NonFiniteError:
            return math.inf

    return loss


def _orbit(work: Workbench, loss: Loss, level: float, exit: float) -> dict[str, Any]:
    """Images of a box, whose total volume has no bound; or the reason for none."""
    point = work.objective.parameters
    ones = map_tensors(torch.ones_like, point)
    try:
        rescalings = work.group().vertical(ones, Kind.LAYER_RESCALE)
    except FlatgaugeError as reason:
        return _no_orbit(f"no symmetry was found: {reason}")
    if not len(rescalings):
        return _no_orbit("no rescaling of whole tensors leaves this network unchanged.")
    # ln det T grows fastest along its own slope; where it is 0, any rescaling serves.
    growth = rescalings.inner(ones)
    scales = rescalings.combine(growth) if bool(growth.any()) else rescalings[0]
    slope = work.gradient(work.objective)
    width = inscribed_box(
        loss,
        point,
        level,
        exit / math.sqrt(size(point)),
        corners=[slope, scale(slope, -1.0)],
        points=POINTS,
        seed=work.seed,
    )
    found = orbit_sum(ravel(point), ravel(scales), width)
    if found is None:
        return _no_orbit("no box was found whose images are disjoint: raise epsilon=.")
    return {
        "orbit_sum": found.totals,
        "orbit_log_determinant": found.log_determinant,
        "orbit_box_half_width": width,
        "orbit_note": (
            "disjoint images of one box under powers of a rescaling; that the box lies in "
            f"the set was checked at {POINTS} random corners, {POINTS} random interior "
            "points and the gradient's two corners, not proved."
        ),
    }


def _no_orbit(reason: str) -> dict[str, Any]:
    return {"orbit_sum": None, "orbit_note": reason}
