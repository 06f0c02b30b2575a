"""(62), sharpness without approximation: how it depends on λ, and whether it is convex."""

from __future__ import annotations

import math
from typing import Any

import torch

import flatgauge as fg
from flatgauge.solvers.posterior import matrix_posteriors
from flatgauge.uses.matrices import regular
from flatgauge.vectors import Params, add, generator, multiply, scale
from papers.draws import gaussian
from papers.experiment import Context
from papers.tsuzuku2019.network import data_of, facts, trained

SECOND_ORDER, DIRECT = "normalized-sharpness", "normalized-sharpness-direct"
CAP = 1.0  # the largest variance to start from, in units of the mean squared weight


def noise(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """(17) and (62) of one network for several λ, each solved anew."""
    model = trained(context, settings["network"])
    data = data_of(context, settings["network"])
    objective = fg.Objective(model, data)
    return {
        "label": settings["label"],
        "network": facts(objective, *data),
        "values": [_values(objective, lam, settings) for lam in settings["lambdas"]],
    }


def noise_profile(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """(62) along the common size of all noise, under both losses."""
    model = trained(context, settings["network"])
    data = data_of(context, settings["network"])
    base = fg.Objective(model, data)
    losses = ("cross-entropy", "normalized-cross-entropy")
    return {
        "network": facts(base, *data),
        "log_noise": settings["log_noise"],
        "profiles": [_profile(base.with_loss(one), one, settings) for one in losses],
    }


def _values(
    objective: fg.Objective, lam: float, settings: dict[str, Any]
) -> dict[str, Any]:
    names = (SECOND_ORDER, DIRECT)
    own: dict[str, dict[str, Any]] = {
        name: {"lam": lam, "surrogate": "objective"} for name in names
    }
    own[DIRECT] |= {"steps": settings["steps"], "draws": settings["draws"]}
    report = fg.measure(objective, *names, options=own)
    direct = report[DIRECT]
    return {
        "lambda": lam,
        "second_order": report[SECOND_ORDER].value,
        "direct": direct.value,
        "error": direct.uncertainty,
        "left": direct.details["decrease_left"],
        "trusted": direct.status.trusted,
        "predicted": direct.details["second_order"],
    }


def _profile(
    objective: fg.Objective, loss: str, settings: dict[str, Any]
) -> dict[str, Any]:
    """E L(θ + e^{t/2} √s ε) − L(θ) and Σ W²/2s e^{−t}, at the t of the settings.

    The draws ε are the same at every t, so that the curve of each pair ±ε is smooth; s
    is the best for (17) at λ = 1. Divided by λ, the second term is the penalty at λ.
    """
    deviation, penalty = _start(objective)
    point, base = objective.parameters, objective.value()
    ts, random = settings["log_noise"], generator(settings["seed"])
    rises = []
    for _ in range(settings["pairs"]):
        move = multiply(deviation, gaussian(point, random))
        rises.append([_pair(objective, move, t) - base for t in ts])
    each = torch.tensor(rises, dtype=torch.float64)
    mean, error = each.mean(0), each.std(0) / math.sqrt(len(each))
    bends = each[:, 2:] - 2 * each[:, 1:-1] + each[:, :-2]
    falling = [penalty * math.exp(-t) for t in ts]
    return {
        "loss": loss,
        "rise": mean.tolist(),
        "error": error.tolist(),
        "penalty": falling,
        "lambdas": [_bend(mean, bends, falling, lam) for lam in settings["lambdas"]],
    }


def _bend(
    mean: torch.Tensor, bends: torch.Tensor, falling: list[float], lam: float
) -> dict[str, Any]:
    """Where (62) along t bends down most clearly, in standard errors, and its minima."""
    penalty = torch.tensor(falling, dtype=torch.float64) / lam
    bend = bends + (penalty[2:] - 2 * penalty[1:-1] + penalty[:-2])
    middle = bend.mean(0)
    scores = middle / (bend.std(0) / math.sqrt(len(bend)))
    where = int(scores.argmin())
    curve = mean + penalty
    inside = (curve[1:-1] < curve[:-2]) & (curve[1:-1] < curve[2:])
    return {
        "lambda": lam,
        "bend": float(middle[where]),
        "score": float(scores[where]),
        "at": where + 1,
        "minima_inside": int(inside.sum()),
        "curve": curve.tolist(),
    }


def _pair(objective: fg.Objective, move: Params, t: float) -> float:
    """The mean loss at θ ± e^{t/2} of a move."""
    moved, point = scale(move, math.exp(t / 2)), objective.parameters
    values = [objective.at(add(point, moved, sign)).value() for sign in (1.0, -1.0)]
    return sum(values) / 2


def _start(objective: fg.Objective) -> tuple[Params, float]:
    """√s of every entry for (17) at λ = 1, and Σ W²/2s."""
    diagonal = fg.hessian_diagonal(objective, "exact").values
    deviation, penalty = {}, 0.0
    for name, weight in objective.parameters.items():
        if weight.ndim != 2:
            deviation[name] = torch.zeros_like(weight)
            continue
        matrices = regular(*weight.shape)
        (solved,) = matrix_posteriors(matrices, diagonal[name], weight)
        x, y = solved.log_scales(1.0, CAP)
        s = (x[:, None] + y).exp().to(weight)
        deviation[name] = s.sqrt()
        penalty += float((weight.square() / (2 * s)).sum())
    return deviation, penalty


def orders(networks: list[dict[str, Any]], name: str) -> list[list[str]]:
    """The networks from flat to sharp by "second_order" or "direct", for every λ."""
    found = []
    for index in range(len(networks[0]["values"])):
        ranked = sorted(networks, key=lambda one: one["values"][index][name])
        found.append([one["label"] for one in ranked])
    return found
