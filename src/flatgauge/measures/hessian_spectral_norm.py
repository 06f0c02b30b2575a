"""The largest eigenvalue of the Hessian."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatgauge.measures import effort
from flatgauge.measures.options import Count, Positive
from flatgauge.measures.registry import Outcome, measure
from flatgauge.measures.workbench import Workbench
from flatgauge.shards import number
from flatgauge.solvers.lanczos import Extremes
from flatgauge.vocabulary import RENAMINGS, Kind


@measure(
    name="hessian-spectral-norm",
    title="Largest eigenvalue of the Hessian",
    formula="λmax(∇²L(θ))",
    reference="Dinh et al. 2017; Rangamani et al. 2019, Definition 1",
    invariant_to=lambda options, loss: {*RENAMINGS, Kind.ABSORBED_SHIFT},
    flatter="smaller",
    cost="10 to 50 Hessian products",
    effort=effort.of_eigenvalue,
    on_shards=True,
)
def hessian_spectral_norm(
    work: Workbench, *, tol: Positive = 1e-3, max_steps: Count = 300, full: bool = False
) -> Outcome:
    """The largest algebraic eigenvalue by Lanczos; details: smallest, radius.

    Args:
        work: what the measures share.
        tol: the relative residual ‖Hv − λv‖ / |λ|.
        max_steps: the most Hessian products.
        full: go on until the smallest eigenvalue has converged too.
    """
    found = work.extremes(
        work.objective, "euclidean", tol=tol, max_steps=max_steps, both=full
    )
    return extremes_outcome(found)


def extremes_outcome(
    found: Extremes, details: Mapping[str, Any] | None = None
) -> Outcome:
    """The largest eigenvalue, with the rest of the run in the details."""
    return Outcome(
        found.value,
        found.status,
        found.message,
        found.error_bound,
        {
            "smallest": found.smallest,
            "radius": found.radius,
            "residual": found.residual,
            "smallest_residual": found.smallest_residual,
            "smallest_error_bound": found.smallest_error_bound,
            "smallest_status": found.smallest_status.name,
            "steps": found.products,
            "layers": {
                name: number(part.double().square().sum())
                for name, part in found.vector.items()
            },
            **(details or {}),
        },
    )
