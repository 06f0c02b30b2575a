"""About how many gradients measures take, for plans.

A gradient, a product and a part of a matrix are timed on the model at hand where that takes
little of the time there is; other numbers are rough, from `python -m benchmarks.efforts`. A
plan corrects itself by what measures take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flatgauge import deadline
from flatgauge.diagonals.diagonal import backward_passes
from flatgauge.diagonals.per_row import rows_apart
from flatgauge.measures.registry import Gradients
from flatgauge.measures.workbench import (
    EXACT_METHODS,
    EXPECTED_PRODUCTS,
    REPLICATES,
    Workbench,
)
from flatgauge.memo import once
from flatgauge.objective import Objective
from flatgauge.vectors import gaussian, generator, gradient_of, size

# Gradients of a product, with its share of what solvers do, and what solvers do with one
# that is read off a matrix.
PRODUCT, READ = 2.0, 0.5
# Seconds of drawing a normal number, and a sign.
NORMAL, SIGN = 1.3e-8, 1.5e-9
# Gradients of one backward pass of an exact diagonal.
PASS = 1.0
# Products of a Lanczos run with the default tolerance, and with 1e-6.
EIGENVALUE, FINE_EIGENVALUE = 15, 60
# Gradients of one row of a sample, where it is differentiated by itself.
ROW = 1.3
# What a look at the model takes: how it uses its parameters.
LOOK = 2.0
# Matrices times their transposes that a convex problem takes, by how it is solved.
BALANCING, FINE_BALANCING = 6.0, 10.0
# Operations in float64 that a product of matrices does in a second.
OPERATIONS = 4e10
# Gradients are timed until this many seconds have gone by, up to so often.
TIMED, MOST_TIMED = 0.03, 3


@once
def gradient_seconds(objective: Objective) -> float:
    """The seconds of one gradient, by that of the first batch."""

    def own() -> float:
        batch = objective.first_batch()

        def one() -> None:
            with objective.isolated():
                leaves = objective.leaves()
                slope = gradient_of(objective.batch_total(leaves, batch), leaves)
                # Waits for the device.
                float(next(iter(slope.values())).sum())

        return _fastest(one)

    taken = objective.ranks.agreed(objective.ranks.together(own))
    return taken * objective.sample_count / max(objective.batch_sizes[0], 1)


def _fastest(work: Callable[[], object]) -> float:
    """The seconds of a piece of work; its first times also warm up."""
    found, ended = [], deadline.clock() + TIMED
    while not found or (len(found) < MOST_TIMED and deadline.clock() < ended):
        started = deadline.clock()
        work()
        found.append(deadline.clock() - started)
    return min(found)


def of_eigenvalue(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """One Lanczos run, or three where everything is asked for."""
    runs = 3 if options.get("full") else 1
    start = _drawn(work, NORMAL)
    steps = min(EIGENVALUE, options["max_steps"])
    made = None
    if work.may_look and work.hessian(work.objective).reads_matrix:
        made = _matrix(work, work.objective, EXPECTED_PRODUCTS)
    if made is None:
        each = _product(work)
        return Gradients(runs * (start + steps * each), start + each)
    return made._replace(whole=made.whole + runs * (start + steps * READ))


def of_diagonal(
    work: Workbench, objective: Objective, curvature: str, probes: int
) -> Gradients:
    """A diagonal of a Hessian or a Gauss-Newton matrix."""
    method = _method(work, objective, curvature)
    shared = f"{method} diagonal under {objective.loss.name}"
    if method == "basis":
        count = size(objective.parameters)
        made = _matrix(work, objective, count)
        if made is not None:
            return made
        whole = _product(work) * count
        return Gradients(whole, whole, whole, shared)
    if method == "hutchinson":
        return Gradients(_probe(work) * probes, 2 * _probe(work))
    if method == "exact":
        whole = first = PASS * backward_passes(objective)
    else:
        whole, first = PASS * probes, 2 * PASS * probes / REPLICATES
    return Gradients(whole, first, whole, shared)


@once
def _matrix(work: Workbench, objective: Objective, instead_of: int) -> Gradients | None:
    """The matrix of a small Hessian, if it is made rather than so many products."""
    if not work.may_look:
        return None
    seconds = work.hessian(objective).matrix_seconds(instead_of)
    if seconds is None:
        return None
    whole = seconds / gradient_seconds(work.objective)
    return Gradients(whole, whole, whole, f"matrix under {objective.loss.name}")


@once
def _product(work: Workbench) -> float:
    """The gradients of one product, timed where that takes little."""
    objective = work.objective
    alone = objective.ranks.count == 1
    if not (work.may_look and alone and objective.device.type == "cpu"):
        return PRODUCT
    hessian = work.hessian(objective)
    vector = gaussian(objective.parameters, generator(0))
    hessian.prepare()
    started = deadline.clock()
    _ = hessian @ vector
    return (deadline.clock() - started) / gradient_seconds(objective)


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
        return _more(found, FINE_BALANCING * square, FINE_BALANCING * square)
    every = (1 + REPLICATES) * BALANCING * square
    return _more(found, every, BALANCING * square)


def of_trace(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """The exact diagonal, or all of the probes that are allowed."""
    if _method(work, work.objective, "hessian") in EXACT_METHODS:
        return of_diagonal(work, work.objective, "hessian", 0)
    each = _probe(work)
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
    return _more(found, steps, 8)


def of_bound(work: Workbench, options: Mapping[str, Any]) -> Gradients:
    """A diagonal, then forward passes, of which three are a gradient."""
    found = of_sharpness(work, options)
    return _more(found, options["samples"] / 2, 2)


def _more(found: Gradients, whole: float, first: float) -> Gradients:
    return found._replace(whole=found.whole + whole, first=found.first + first)


def _method(work: Workbench, objective: Objective, curvature: str) -> str:
    """How a diagonal is computed, or how that of a large model mostly is."""
    return work.method(objective, curvature) if work.may_look else "hutchinson"


def _probe(work: Workbench) -> float:
    """A product with random signs."""
    return _product(work) + _drawn(work, SIGN)


def _drawn(work: Workbench, seconds: float) -> float:
    """The gradients of a random vector, by the seconds of an entry."""
    objective = work.objective
    return seconds * size(objective.parameters) / gradient_seconds(objective)


def _transposes(work: Workbench) -> float:
    """The gradients that all matrices times their transposes take.

    A matrix of m rows and n columns, m ≥ n, takes 2 m n² operations in float64.
    """
    tensors = [t for t in work.objective.parameters.values() if t.ndim > 1]
    products = sum(
        t.numel() * min(len(t), t.numel() // max(len(t), 1)) for t in tensors
    )
    return 2 * products / OPERATIONS / gradient_seconds(work.objective)
