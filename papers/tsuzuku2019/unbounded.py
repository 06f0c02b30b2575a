"""Section 5.1: one rescaling makes the norms of both matrices as large as one likes."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain
from papers.experiment import Context
from papers.tsuzuku2019.appendix import rescale_node
from papers.tsuzuku2019.network import data_of, facts, trained

MEASURES = ("normalized-sharpness", "matrix-normalized-sharpness")


def unbounded(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Norms, stable ranks and sharpness for growing α, on a trained network.

    As in Appendix A.1, one hidden unit has its row divided by α and its column
    multiplied by α, another one the other way round. They are the two for which the
    product of the norms of row and column is largest.
    """
    model = trained(context, settings["network"])
    data = data_of(context, settings["network"])
    base = fg.Objective(model, data)
    chain = Chain.of(model)
    first, second = (layer.weight for layer in chain.layers)
    point = base.parameters
    strength = point[first].norm(dim=1) * point[second].norm(dim=0)
    down, up = (int(unit) for unit in strength.topk(2).indices)
    before = fg.hessian_diagonal(base, "exact").values[first]
    steps = []
    for alpha in settings["alphas"]:
        moved = rescale_node(point, chain, down, alpha)
        moved = rescale_node(moved, chain, up, 1 / alpha)
        at = base.at(moved)
        after = fg.hessian_diagonal(at, "exact").values[first]
        steps.append(
            {
                "alpha": alpha,
                "loss": at.value(),
                "first": _norms(moved[first]),
                "second": _norms(moved[second]),
                **_complexities([moved[first], moved[second]]),
                # The paper: the curvatures of the divided row grow as α².
                "row_curvature": float(after[down].sum() / before[down].sum()),
                **_sharpness(at),
            }
        )
    return {"network": facts(base, *data), "steps": steps}


def _sharpness(at: fg.Objective) -> dict[str, Any]:
    options: dict[str, dict[str, Any]] = {
        name: {"surrogate": "objective"} for name in MEASURES
    }
    names = (*MEASURES, "hessian-trace")
    report = fg.measure(at, *names, options=options, strict=True)
    return {name: report[name].value for name in names}


def _norms(matrix: Tensor) -> dict[str, float]:
    values = torch.linalg.svdvals(matrix)
    square = float(values.square().sum())
    # ‖W‖_F²/‖W‖₂² − 1 without the cancellation of the largest value with itself.
    rest = float(values[1:].square().sum() / values[0] ** 2)
    return {
        "frobenius": math.sqrt(square),
        "spectral": float(values[0]),
        "stable_rank": 1 + rest,
        "above_one": rest,
    }


def _complexities(matrices: list[Tensor]) -> dict[str, float]:
    """What the bounds of the two papers that are named are made of.

    Bartlett et al. 2017: Π‖W‖₂ (Σ (‖Wᵀ‖₂,₁/‖W‖₂)^(2/3))^(3/2); Neyshabur et al. 2018,
    its root: Π‖W‖₂ (Σ ‖W‖_F²/‖W‖₂²)^(1/2).
    """
    spectral = [float(torch.linalg.matrix_norm(one, 2)) for one in matrices]
    # Norms of the rows, each the weights of one unit.
    mixed = [float(one.norm(dim=1).sum()) for one in matrices]
    frobenius = [float(one.norm()) for one in matrices]
    product = math.prod(spectral)
    ratios = [(m / s) ** (2 / 3) for m, s in zip(mixed, spectral, strict=True)]
    ranks = [(f / s) ** 2 for f, s in zip(frobenius, spectral, strict=True)]
    return {
        "bartlett": product * sum(ratios) ** 1.5,
        "neyshabur": product * math.sqrt(sum(ranks)),
    }
