"""The bounds (1), (2) and (4) for trained networks, with the hyperprior paid for."""

from __future__ import annotations

import math
from statistics import fmean, stdev
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import flatgauge as fg
from flatgauge.solvers.pac_bayes import psi_bound
from flatgauge.vectors import Params, add, generator, multiply
from papers.draws import gaussian
from papers.experiment import Context
from papers.tsuzuku2019.network import data_of, facts, held_out, trained
from papers.tsuzuku2019.posteriors import CAP, GRID, posterior

MEASURE = "pac-bayes-bound"
# What the page shows of a bound's details.
TERMS = (
    "training_error",
    "posterior_error",
    "posterior_error_bound",
    "B",
    "C",
    "C_second_order",
    "kl",
    "equal_variance_kl",
    "hyperprior",
    "tuned_scales",
    "grid_size",
    "lambda",
    "lambda_price",
    "log_inverse_delta",
    "psi",
    "vacuous",
)
DELTA = 0.05


def bounds(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """The bound and its terms for every network, beside the error on unseen images."""
    return {
        "networks": [
            {"label": one["label"], **_bounds(context, one["network"], settings)}
            for one in settings["networks"]
        ]
    }


def _bounds(
    context: Context, network: dict[str, Any], settings: dict[str, Any]
) -> dict[str, Any]:
    model, data = trained(context, network), data_of(context, network)
    unseen = held_out(context, network)
    objective = fg.Objective(model, data)
    shaping = objective.with_loss("normalized-cross-entropy")
    diagonal = fg.hessian_diagonal(shaping, "exact").values
    found: dict[str, Any] = {
        "network": facts(objective, *data),
        "unseen_samples": len(unseen[1]),
        "unseen_error": error(model, objective.parameters, unseen),
        "posteriors": {},
    }
    for kind in settings["posteriors"]:
        bound = _bound(objective, settings, kind, {})
        rebuilt = posterior(kind, objective.parameters, diagonal, bound["lambda"])
        drawn = errors(model, objective.parameters, rebuilt.deviation, unseen, settings)
        found["posteriors"][kind] = {
            **bound,
            "paper": _with_printed_psi(bound, len(data[1])),
            "rebuilt_kl": rebuilt.kl,
            "unseen_error": fmean(drawn),
            "unseen_standard_error": stdev(drawn) / math.sqrt(len(drawn)),
            "A": found["unseen_error"] - fmean(drawn),
        }
        if kind == "matrix":
            found["deviation"] = deviation(
                model, rebuilt.prior, data, bound["lambda"], settings
            )
    found["sweep"] = [
        _bound(objective, settings, kind, {"lam": factor * len(data[1])})
        for kind in settings["posteriors"]
        for factor in settings["factors"]
    ]
    return found


def _bound(
    objective: fg.Objective, settings: dict[str, Any], kind: str, more: dict[str, Any]
) -> dict[str, Any]:
    """The measure and its terms, for one λ given in `more`, or the best of a grid."""
    options = {"posterior": kind, "samples": settings["draws"], "delta": DELTA}
    options |= {"cap": CAP, "grid_ratio": GRID.ratio, **more}
    report = fg.measure(objective, MEASURE, options={MEASURE: options}, strict=True)
    one = report[MEASURE]
    return {"kind": kind, "value": one.value, **{t: one.details[t] for t in TERMS}}


def _with_printed_psi(bound: dict[str, Any], samples: int) -> float:
    """The same bound with λ²/2m, equation (3), for Ψ: an upper bound of its best λ."""
    lam = bound["lambda"]
    return bound["value"] + (psi_bound(lam, samples, "paper") - bound["psi"]) / lam


def deviation(
    model: nn.Module,
    prior: Params,
    data: tuple[Tensor, Tensor],
    lam: float,
    settings: dict[str, Any],
) -> dict[str, float]:
    """(2): Ψ(λ, m) where the true distribution is that of these samples.

    For one hypothesis of error p a set of m draws gives m ln E exp(λ (p − loss) / m),
    which is known; the expectation over the prior is a mean over draws from it.

    Args:
        model: gives the shapes.
        prior: the standard deviation σ_P of every parameter.
        data: the m samples.
        lam: λ.
        settings: "draws" and "seed".
    """
    zero = {name: torch.zeros_like(one) for name, one in prior.items()}
    risks = errors(model, zero, prior, data, settings)
    m = len(data[1])
    each = torch.tensor([m * _one_sample(p, lam / m) for p in risks])
    return {
        "found": float(torch.logsumexp(each, 0)) - math.log(len(risks)),
        "tight": psi_bound(lam, m, "tight"),
        "printed": psi_bound(lam, m, "paper"),
        "least_risk": min(risks),
        "largest_risk": max(risks),
    }


def _one_sample(risk: float, rate: float) -> float:
    """ln E exp(t (p − loss)) of a 0-1 loss with mean p, at t = `rate`."""
    wrong, right = (
        risk * math.exp(rate * (risk - 1)),
        (1 - risk) * math.exp(rate * risk),
    )
    return math.log(wrong + right)


def errors(
    model: nn.Module,
    mean: Params,
    spread: Params,
    data: tuple[Tensor, Tensor],
    settings: dict[str, Any],
) -> list[float]:
    """The errors on these samples of networks drawn around `mean`."""
    random = generator(settings["seed"])
    return [
        error(model, add(mean, multiply(spread, gaussian(mean, random))), data)
        for _ in range(settings["draws"])
    ]


@torch.no_grad()
def error(model: nn.Module, params: Params, data: tuple[Tensor, Tensor]) -> float:
    """The share of the samples that the network with these parameters gets wrong."""
    outputs = functional_call(model, params, (data[0],))
    return float((outputs.argmax(1) != data[1]).double().mean())
