"""The largest curvature in a metric that scales with the parameters."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

from flatgauge import deadline
from flatgauge.curvature.operator import Compressed, SymmetricOperator
from flatgauge.deadline import OutOfTime
from flatgauge.geometry.metric import resolve_metric
from flatgauge.geometry.quotient import horizontal_projection
from flatgauge.measures import effort
from flatgauge.measures.hessian_spectral_norm import extremes_outcome
from flatgauge.measures.options import Count, Positive, Scaling
from flatgauge.measures.registry import Outcome, measure, output_claims
from flatgauge.measures.workbench import Workbench
from flatgauge.results import Status
from flatgauge.solvers.lanczos import largest_eigenvalue
from flatgauge.solvers.power import power_method
from flatgauge.vectors import Params, multiply
from flatgauge.vocabulary import RENAMINGS, Kind


def riemannian_claims(options, loss: str) -> set[Kind]:
    """What both Riemannian measures claim: as their metric."""
    claims = {Kind.LAYER_RESCALE, *RENAMINGS}
    claims |= {Kind.NODE_RESCALE} if options["metric"] == "node" else set()
    return claims | output_claims(options, loss)


@measure(
    name="riemannian-spectral-norm",
    title="Riemannian spectral norm",
    formula="λmax(S ∇²L S), S = ‖W_l‖ (layer) or |w| (node)",
    reference="Rangamani et al. 2019, Definition 3 and section 6",
    invariant_to=riemannian_claims,
    flatter="smaller",
    cost="10 to 50 Hessian products",
    effort=effort.of_eigenvalue,
    on_shards=True,
)
def riemannian_spectral_norm(
    work: Workbench,
    *,
    metric: Scaling = "layer",
    connection: Literal["flat", "levi-civita"] = "flat",
    solver: Literal["lanczos", "power"] = "lanczos",
    tol: Positive = 1e-3,
    max_steps: Count = 300,
    center_output: bool = False,
    full: bool = False,
) -> Outcome:
    """The largest algebraic eigenvalue; details: smallest, radius.

    Args:
        work: what the measures share.
        metric: "layer" (the norm of each tensor) or "node" (each entry's magnitude).
        connection: "flat" (the paper's) or "levi-civita"; they agree at a minimum.
        solver: "lanczos", or the paper's "power" method.
        tol: the relative residual.
        max_steps: the most Hessian products.
        center_output: take the mean over classes out of the output layer first.
        full: also a converged smallest eigenvalue, and the largest on the horizontal
            space and for weights only.
    """
    if full or solver == "power" or connection != "flat":
        work = work.whole()
    point = work.point(center_output)
    if solver == "power":
        operator = work.whitened(work.objective, metric, connection, point)
        return _by_power(operator, tol, max_steps, work.seed)
    found = work.extremes(
        work.objective,
        metric,
        connection=connection,
        point=point if center_output else None,
        tol=tol,
        max_steps=max_steps,
        both=full,
    )
    if not full:
        return extremes_outcome(found)
    try:
        more = _more(work, metric, connection, point, tol, max_steps)
    except OutOfTime as stop:
        message = stop.after("before the other eigenvalues of full=True")
        part = replace(found, status=Status.NOT_CONVERGED, message=message)
        return extremes_outcome(part)
    return extremes_outcome(found, more)


def _more(
    work: Workbench,
    metric: str,
    connection: str,
    point: Params,
    tol: float,
    max_steps: int,
) -> dict[str, Any]:
    """The values that take runs of their own."""
    operator = work.whitened(work.objective, metric, connection, point)
    scales = resolve_metric(metric).scales(point)
    kept = {n: (s != 0) & (s.ndim >= 2) for n, s in scales.items()}
    masked = Compressed(operator, lambda v: multiply(v, kept))
    weights_only = _settled(masked, tol, max_steps, work.seed)
    vertical = work.vertical(
        Kind.LAYER_RESCALE if metric == "layer" else Kind.NODE_RESCALE
    )
    projection = horizontal_projection(vertical, resolve_metric(metric), point)
    horizontal = Compressed(operator, projection)
    on_it = _settled(horizontal, tol, max_steps, work.seed)
    return {"weights_only": weights_only, "horizontal": on_it}


def _settled(
    operator: SymmetricOperator, tol: float, max_steps: int, seed: int
) -> float:
    """The largest eigenvalue, unless time runs out before it has converged."""
    found = largest_eigenvalue(operator, tol, max_steps, seed, bounded=False)
    deadline.check()
    return found.value


def _by_power(
    operator: SymmetricOperator, tol: float, max_steps: int, seed: int
) -> Outcome:
    """Algorithm 1 of the paper, with its stopping rule mended and without a shift."""
    found = power_method(operator, tol, max_steps, seed, shift=False)
    details = {
        "residual": found.residual,
        "steps": found.products,
        "quotients": found.quotients,
        "changes": found.changes,
    }
    converged = found.status is Status.CONVERGED
    return Outcome(
        found.value,
        found.status,
        found.message,
        found.residual if converged else None,
        details,
    )
