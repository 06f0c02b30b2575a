"""The inner loop of Algorithm 1, gradient descent in the log scales, and our solver."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor

import flatgauge as fg
from flatgauge.solvers.balancing import balance
from papers.experiment import Context
from papers.tsuzuku2019.network import data_of, trained, twins


def descent(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Steps of gradient descent until (17) is within 1 % of its certified minimum.

    The diagonal is exact, so that only the optimization differs. The paper names no
    learning rate.
    """
    model = trained(context, settings["network"])
    data = data_of(context, settings["network"])
    base = fg.Objective(model, data, settings["loss"])
    points = twins(model, settings["twins"])
    tries = []
    for point, rate in settings["tries"]:
        diagonal = fg.hessian_diagonal(base.at(points[point]), "exact").values
        for name, weight in points[point].items():
            if weight.ndim != 2:
                continue
            alpha, beta = diagonal[name].clamp_min(0), weight.square()
            best = balance(alpha, beta)
            found = steps_to(
                alpha, beta, rate, settings["steps"], best.value, settings["within"]
            )
            tries.append(
                {
                    "point": point,
                    "matrix": name,
                    "shape": list(weight.shape),
                    "rate": rate,
                    "minimum": best.value,
                    "newton_steps": best.steps,
                    "gap": best.gap,
                    **found,
                }
            )
    return {"tries": tries}


def steps_to(
    alpha: Tensor,
    beta: Tensor,
    rate: float,
    limit: int,
    minimum: float,
    within: float,
) -> dict[str, Any]:
    """Algorithm 1's inner loop, from σ = σ' = 1, until close to the minimum.

    With σ = e^x and σ' = e^y the objective is Σ h (σσ')² + W²/(σσ')²; both are updated
    at once. `steps` is None where the limit came first or the values overflowed.
    """
    x, y = alpha.new_zeros(alpha.shape[0]), alpha.new_zeros(alpha.shape[1])
    excess = math.inf
    for step in range(limit + 1):
        total = (2 * (x[:, None] + y)).exp()
        rising, falling = alpha * total, beta / total
        value = float(rising.sum() + falling.sum())
        excess = value / minimum - 1
        if not math.isfinite(value):
            return {"steps": None, "outcome": "diverged", "excess": None}
        if excess <= within:
            return {"steps": step, "outcome": "reached", "excess": excess}
        slope = 2 * (rising - falling)
        x, y = x - rate * slope.sum(1), y - rate * slope.sum(0)
    return {"steps": None, "outcome": "not reached", "excess": excess}
