"""About how many gradients measures take, for plans.

The numbers are medians over five networks on a CPU (two perceptrons, one of them with
kinks, a convolutional network with batch normalization, a transformer and an LSTM), from
`python -m benchmarks.efforts`; single ones were up to a factor of two off.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatgauge.curvature.diagonal import backward_passes, output_layout
from flatgauge.measures.workbench import EXACT_METHODS, Workbench
from flatgauge.objective import Objective
from flatgauge.vectors import size

# Gradients of a product, with its share of what solvers do.
PRODUCT = 2.0
# Gradients of one backward pass of an exact diagonal.
PASS = 1.0
# Products of a Lanczos run with the default tolerance, and with 1e-6.
EIGENVALUE, FINE_EIGENVALUE = 20, 60
# Gradients of one row of a sample, where it is differentiated by itself.
ROW = 1.3
# What a look at the model takes: how it uses its parameters.
LOOK = 2.0


def of_eigenvalue(work: Workbench, options: Mapping[str, Any]) -> float:
    """One Lanczos run, or three where everything is asked for."""
    runs = 3 if options.get("full") else 1
    return runs * PRODUCT * min(EIGENVALUE, options["max_steps"])


def of_diagonal(
    work: Workbench, objective: Objective, curvature: str, probes: int
) -> float:
    """A diagonal of a Hessian or a Gauss-Newton matrix."""
    method = work.method(objective, curvature)
    if method == "exact":
        return PASS * backward_passes(objective)
    if method == "basis":
        return PRODUCT * size(objective.parameters)
    return probes * (PRODUCT if method == "hutchinson" else PASS)


def of_sharpness(work: Workbench, options: Mapping[str, Any]) -> float:
    """A diagonal, and what is made of it."""
    objective = work.surrogate(options["surrogate"])
    found = of_diagonal(work, objective, options["curvature"], options["probes"])
    return LOOK + found


def of_ball(work: Workbench, options: Mapping[str, Any]) -> float:
    """An eigenvalue, then climbs of about twenty gradients."""
    climbs = 3 + options["restarts"]
    return PRODUCT * FINE_EIGENVALUE + 20 * climbs


def of_trace(work: Workbench, options: Mapping[str, Any]) -> float:
    """The exact diagonal, or all of the probes that are allowed."""
    objective, most = work.objective, options["max_products"]
    if work.method(objective, "hessian") in EXACT_METHODS:
        return of_diagonal(work, objective, "hessian", 0)
    return PRODUCT * most


def of_fisher_rao(work: Workbench, options: Mapping[str, Any]) -> float:
    """A product with the Jacobian, or squared gradients for the diagonal."""
    if not options["diagonal"]:
        return LOOK
    return LOOK + ROW * output_layout(work.objective)[1]


def of_descent(work: Workbench, options: Mapping[str, Any]) -> float:
    """A diagonal, four gradients a step and one a draw."""
    return of_sharpness(work, options) + 4 * options["steps"] + options["draws"]


def of_bound(work: Workbench, options: Mapping[str, Any]) -> float:
    """A diagonal, then forward passes, of which three are a gradient."""
    return of_sharpness(work, options) + options["samples"] / 2
