"""The constants of the paper's formulas, printed and corrected, on small numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from scipy.optimize import minimize_scalar
from torch import nn
from torch.distributions import Normal, kl_divergence

import flatgauge as fg
from flatgauge.solvers.balancing import balance
from papers.experiment import Context


def constants(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Every formula as printed and as it should be, beside an independent computation."""
    return {
        "noise": _noise(settings["noise"]),
        "matrices": _matrices(settings["matrices"]),
        "lambda": _lambda(settings["pair"], settings["lambdas"]),
        "direct": _direct(settings["direct"]),
        "divergence": _divergence(settings["divergence"]),
        "deviation": _deviation(settings["deviation"]),
    }


def _noise(settings: dict[str, Any]) -> dict[str, float]:
    """(5): E L(θ+ε) − L(θ) on the quadratic ½ θᵀHθ, by a cubature that is exact there."""
    hessian = torch.tensor(settings["hessian"], dtype=torch.float64)
    theta = torch.tensor(settings["point"], dtype=torch.float64)
    # The points ±√n e_i, equally weighted, have mean 0 and covariance I.
    nodes = math.sqrt(len(theta)) * torch.eye(len(theta), dtype=torch.float64)
    around = theta + torch.cat([nodes, -nodes])
    values = ((around @ hessian) * around).sum(1) / 2
    rise = float(values.mean() - theta @ hessian @ theta / 2)
    trace = float(hessian.trace())
    return {"printed": trace, "corrected": trace / 2, "found": rise}


def _matrices(settings: dict[str, Any]) -> dict[str, Any]:
    """(10)-(12): the best noise of each matrix, and what is then left."""
    sums, squares, lam = settings["sums"], settings["squares"], settings["lam"]
    pairs = list(zip(sums, squares, strict=True))
    together = sum(math.sqrt(w * h) for h, w in pairs)

    def least(half: float) -> list[tuple[float, float]]:
        """The best variance of each matrix and its minimum, found numerically."""
        found = [
            minimize_scalar(
                lambda log, h=h, w=w: (
                    half * h * math.exp(log) + w / (2 * lam) * math.exp(-log)
                ),
                tol=1e-12,
            )
            for h, w in pairs
        ]
        return [(math.exp(float(one.x)), float(one.fun)) for one in found]

    printed, corrected = least(1.0), least(0.5)
    return {
        "printed": math.sqrt(2 / lam * together),
        "corrected_root": math.sqrt(2 / lam) * together,
        "found_printed_objective": sum(value for _, value in printed),
        "corrected_half": together / math.sqrt(lam),
        "found_corrected_objective": sum(value for _, value in corrected),
        "variance_printed": [math.sqrt(w / (2 * lam * h)) for h, w in pairs],
        "found_variance_printed": [variance for variance, _ in printed],
        "found_variance": [variance for variance, _ in corrected],
    }


def _lambda(pair: dict[str, Any], lambdas: list[float]) -> list[dict[str, float]]:
    """(17) and (62) on a quadratic, for several λ, solved anew each time."""
    h = torch.tensor(pair["curvature"], dtype=torch.float64)
    w = torch.tensor(pair["squares"], dtype=torch.float64)
    base = balance(h, w).value
    return [
        {
            "lambda": lam,
            "found_17": balance(h, w / (2 * lam)).value,
            "law_17": base / math.sqrt(2 * lam),
            "found_62": balance(h / 2, w / (2 * lam)).value,
            "law_62": base / (2 * math.sqrt(lam)),
        }
        for lam in lambdas
    ]


def _direct(settings: dict[str, Any]) -> dict[str, float | None]:
    """(62) by sampling on a linear model with squared errors, where L is quadratic."""
    model = nn.Linear(3, 2, bias=False).double()
    with torch.no_grad():
        model.weight.copy_(torch.tensor(settings["weights"], dtype=torch.float64))
    inputs = torch.tensor(settings["inputs"], dtype=torch.float64)
    data = (inputs, torch.zeros(len(inputs), 2, dtype=torch.float64))
    names = ("normalized-sharpness", "normalized-sharpness-direct")
    own: dict[str, dict[str, Any]] = {name: {"lam": settings["lam"]} for name in names}
    own[names[1]]["draws"] = settings["draws"]
    objective = fg.Objective(model, data, "mse")
    report = fg.measure(objective, *names, options=own, strict=True)
    second, direct = report[names[0]], report[names[1]]
    assert second.value is not None
    assert direct.value is not None
    assert direct.uncertainty is not None
    return {
        "second_order": second.value,
        "direct": direct.value,
        "direct_error": direct.uncertainty,
        "ratio": second.value / direct.value,
        "ratio_error": second.value / direct.value**2 * direct.uncertainty,
    }


def _divergence(settings: dict[str, Any]) -> dict[str, float]:
    """(6) and (7): KL between N(W, σ_Q²) and N(0, σ_P²), and its least value over σ_P."""
    weights = torch.tensor(settings["weights"], dtype=torch.float64)
    prior, posterior = settings["prior"], settings["posterior"]
    count, square = len(weights), float(weights.square().sum())

    def divergence(sigma: float) -> float:
        q = Normal(weights, torch.full_like(weights, posterior))
        p = Normal(torch.zeros_like(weights), torch.full_like(weights, sigma))
        return float(kl_divergence(q, p).sum())

    ratio = (square + posterior**2) / (2 * prior**2)
    right = (square + count * posterior**2) / (2 * prior**2)
    least: Any = minimize_scalar(lambda log: divergence(math.exp(log)), tol=1e-14)
    return {
        "printed": math.log(prior / posterior) + ratio,
        "corrected": count * math.log(prior / posterior) + right - count / 2,
        "found": divergence(prior),
        "equal": square / (2 * posterior**2),
        "found_equal": divergence(posterior),
        "least": count / 2 * math.log1p(square / (count * posterior**2)),
        "found_least": float(least.fun),
        "best_prior": math.sqrt(square / count + posterior**2),
        "found_best_prior": math.exp(float(least.x)),
    }


def _deviation(settings: dict[str, Any]) -> dict[str, float]:
    """(3): the bound of Ψ for a single hypothesis whose 0-1 loss has a known mean."""
    risk, m, lam = settings["risk"], settings["samples"], settings["lam"]
    # Each sample contributes ln E exp(λ (risk − loss) / m).
    one = (1 - risk) * math.exp(lam * risk / m) + risk * math.exp(lam * (risk - 1) / m)
    return {
        "printed": lam**2 / (2 * m),
        "corrected": lam**2 / (8 * m),
        "found": m * math.log(one),
    }
