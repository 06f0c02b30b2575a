"""The trace of the Hessian."""

from __future__ import annotations

from flatgauge.measures import effort
from flatgauge.measures.options import Count, Positive
from flatgauge.measures.registry import Outcome, measure
from flatgauge.measures.workbench import Workbench, tensor_sums
from flatgauge.memo import once
from flatgauge.solvers.student import student
from flatgauge.solvers.trace import Trace, estimate_trace
from flatgauge.vocabulary import RENAMINGS, Kind


@measure(
    name="hessian-trace",
    title="Trace of the Hessian",
    formula="Tr ∇²L(θ)",
    reference="Tsuzuku et al. 2019, equation (5), without a factor",
    invariant_to=lambda options, loss: {*RENAMINGS, Kind.ABSORBED_SHIFT},
    flatter="smaller",
    cost="K backward passes on piecewise-affine networks, else random probes",
    effort=effort.of_trace,
    on_shards=True,
)
def hessian_trace(
    work: Workbench, *, target: Positive = 0.02, max_products: Count = 64
) -> Outcome:
    """The sum of the exact diagonal where there is one, else an estimate.

    Args:
        work: what the measures share.
        target: the relative standard error to reach where the trace is estimated.
        max_products: the most Hessian products for that; where positive and negative
            curvature cancel, the target is out of reach.
    """
    objective = work.objective
    diagonal = work.exact_diagonal(objective)
    if diagonal is not None:
        value, error = diagonal.evaluate(lambda one: sum(tensor_sums(one).values()))
        details = {"layers": tensor_sums(diagonal.mean), "method": diagonal.method}
        return Outcome(value, diagonal.status, diagonal.message, error, details)
    found = _estimate(work, target, max_products)
    return Outcome(
        found.value,
        found.status,
        found.message,
        found.standard_error * student(found.degrees_of_freedom) or None,
        {
            "method": found.method,
            "interval_95": found.interval(0.95),
            "probes": found.probes,
        },
    )


@once
def _estimate(work: Workbench, target: float, max_products: int) -> Trace:
    hessian = work.hessian(work.objective)
    return estimate_trace(hessian, target, max_products, seed=work.seed)
