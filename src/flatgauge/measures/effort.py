"""About how many gradients measures take, for plans.

They are rough: rounded from one run of `python -m benchmarks.efforts` on a CPU, which shows
how far off they are for five small networks. A plan corrects itself by what measures take.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatgauge.curvature.diagonal import backward_passes
from flatgauge.curvature.per_row import rows_apart
from flatgauge.measures.registry import Gradients
from flatgauge.measures.workbench import EXACT_METHODS, REPLICATES, Workbench
from flatgauge.objective import Objective
from flatgauge.vectors import size

# Gradients of a product, with its share of what solvers do.
PRODUCT = 2.0
# The same where many vectors are multiplied at once, as on a CPU, if batches are small.
AT_ONCE = 0.3
# The same of drawing a normal vector, and signs, times the rows of the data: little, but
# for large models on few data. Of a model of 124 million parameters.
NORMAL, SIGNS = 110.0, 12.0
# Gradients of one backward pass of an exact diagonal.
PASS = 1.0
# Products of a Lanczos run with the default tolerance, and with 1e-6.
EIGENVALUE, FINE_EIGENVALUE = 20, 60
# Gradients of one row of a sample, where it is differentiated by itself.
ROW = 1.3
# What a look at the model takes: how it uses its parameters.
LOOK = 2.0
# Matrices times their transposes that a convex problem takes, by how it is solved.
BALANCING, FINE_BALANCING = 6.0, 10.0


def of_eigenvalue(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """One Lanczos run, or three where everything is asked for."""
    runs = 3 if options.get("full") else 1
    start = NORMAL / work.objective.sample_count
    steps = PRODUCT * min(EIGENVALUE, options["max_steps"])
    return Gradients(runs * (start + steps), start + PRODUCT)


def of_diagonal(
    work: Workbench, objective: Objective, curvature: str, probes: int
) -> Gradients:
    """A diagonal of a Hessian or a Gauss-Newton matrix."""
    method = _method(work, objective, curvature)
    if method == "exact":
        passes = PASS * backward_passes(objective)
        return Gradients(passes, passes)
    if method == "basis":
        each = AT_ONCE if objective.device.type == "cpu" else PRODUCT
        products = each * size(objective.parameters)
        return Gradients(products, products)
    if method == "hutchinson":
        return Gradients(_probe(objective) * probes, 2 * _probe(objective))
    return Gradients(PASS * probes, 2 * PASS * probes / REPLICATES)


def of_sharpness(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """A diagonal, and sums of it."""
    objective = work.objective
    if work.may_look:
        objective = work.surrogate(options["surrogate"])
    return of_diagonal(work, objective, options["curvature"], options["probes"])


def of_balancing(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """A diagonal, and a convex problem for each matrix and each estimate of it."""
    found, square = of_sharpness(work, options), _transposes(work)
    if found.whole == found.first:
        return Gradients(*(one + FINE_BALANCING * square for one in found))
    every = (1 + REPLICATES) * BALANCING * square
    return Gradients(found.whole + every, found.first + BALANCING * square)


def of_trace(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """The exact diagonal, or all of the probes that are allowed."""
    if _method(work, work.objective, "hessian") in EXACT_METHODS:
        return of_diagonal(work, work.objective, "hessian", 0)
    each = _probe(work.objective)
    return Gradients(each * options["max_products"], 2 * each)


def of_fisher_rao(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """A product with the Jacobian, or squared gradients for the diagonal."""
    whole = LOOK
    if options["diagonal"]:
        rows = rows_apart(work.objective)
        exact = rows <= options["exact_rows"]
        whole += ROW * rows if exact else PASS * options["probes"]
    return Gradients(whole, whole)


def of_spectral_norms(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """The largest singular value of each matrix."""
    whole = LOOK + _transposes(work)
    return Gradients(whole, whole)


def of_ball(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """An eigenvalue, then climbs of about twenty gradients."""
    climbs = 20.0 * (3 + options["restarts"])
    return Gradients(PRODUCT * FINE_EIGENVALUE + climbs, PRODUCT + 2)


def of_volume(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """About thirty losses for each direction, of which three are a gradient."""
    return Gradients(10.0 * options["directions"], 20.0)


def of_descent(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """A diagonal, four gradients a step and one a draw."""
    found = of_balancing(work, options)
    steps = 4.0 * options["steps"] + options["draws"]
    return Gradients(found.whole + steps, found.first + 8)


def of_bound(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """A diagonal, then forward passes, of which three are a gradient."""
    found = of_sharpness(work, options)
    return Gradients(found.whole + options["samples"] / 2, found.first + 2)


def _method(work: Workbench, objective: Objective, curvature: str) -> str:
    """How a diagonal is computed, or how that of a large model mostly is."""
    return work.method(objective, curvature) if work.may_look else "hutchinson"


def _probe(objective: Objective) -> float:
    """A product with random signs."""
    return PRODUCT + SIGNS / objective.sample_count


def _transposes(work: Workbench) -> float:
    """The gradients that all matrices times their transposes take, by operations.

    A matrix of m rows and n columns, m ≥ n, takes 2 m n² in float64, which counts
    twice; a gradient takes 6 for each parameter and row.
    """
    tensors = [t for t in work.objective.parameters.values() if t.ndim > 1]
    products = sum(
        t.numel() * min(len(t), t.numel() // max(len(t), 1)) for t in tensors
    )
    rows = size(work.objective.parameters) * work.objective.sample_count
    return 4 * products / max(6 * rows, 1)
