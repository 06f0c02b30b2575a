"""Appendix A.1: node rescaling on two matrices, their norms, and what does not move."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_nodes
from flatgauge.vectors import Params
from papers.experiment import Context

FIRST, SECOND = "0.weight", "2.weight"


def appendix(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """The network (31) before, between and after the two rescalings of the appendix.

    The paper gives no data and no loss; the settings do: squared errors on a few inputs
    for which every hidden unit is active somewhere.
    """
    model = nn.Sequential(
        nn.Linear(2, 2, bias=False), nn.ReLU(), nn.Linear(2, 2, bias=False)
    ).double()
    inputs = torch.tensor(settings["inputs"], dtype=torch.float64)
    targets = torch.tensor(settings["targets"], dtype=torch.float64)
    base = fg.Objective(model, (inputs, targets), "mse", device=context.device)
    point: Params = {
        name: torch.tensor(settings[name], dtype=torch.float64, device=context.device)
        for name in (FIRST, SECOND)
    }
    chain = Chain.of(model)
    stages = [_stage(base, point)]
    for unit, alpha in settings["moves"]:
        point = rescale_node(point, chain, unit, alpha)
        stages.append(_stage(base, point))
    return {"stages": stages, "rows_instead": _rows_instead(settings)}


def rescale_node(params: Params, chain: Chain, unit: int, alpha: float) -> Params:
    """Divide one hidden unit's row by α, multiply its columns by α: (15)-(16)."""
    scales = torch.ones(len(params[chain.layers[0].weight]), dtype=torch.float64)
    scales[unit] = 1 / alpha
    return rescale_nodes(params, chain, [scales])


def _stage(base: fg.Objective, point: Params) -> dict[str, Any]:
    at = base.at(point)
    names = ("normalized-sharpness", "matrix-normalized-sharpness", "hessian-trace")
    surrogate = {name: {"surrogate": "objective"} for name in names[:2]}
    report = fg.measure(at, *names, options=surrogate, strict=True)
    first, second = point[FIRST], point[SECOND]
    return {
        "first": first.tolist(),
        "second": second.tolist(),
        "first_norms": _norms(first),
        "second_norms": _norms(second),
        "loss": at.value(),
        **{name: report[name].value for name in names},
    }


def _norms(matrix: Tensor) -> dict[str, float]:
    frobenius = float(matrix.norm())
    spectral = float(torch.linalg.matrix_norm(matrix, 2))
    return {
        "frobenius": frobenius,
        "frobenius_squared": float(matrix.square().sum()),
        "spectral": spectral,
        "stable_rank": (frobenius / spectral) ** 2,
    }


def _rows_instead(settings: dict[str, Any]) -> dict[str, Any]:
    """The second matrix with its rows scaled, where (16) scales its columns."""
    matrix = torch.tensor(settings[SECOND], dtype=torch.float64)
    for unit, alpha in settings["moves"]:
        matrix[unit] *= alpha
    return {"matrix": matrix.tolist(), **_norms(matrix)}
