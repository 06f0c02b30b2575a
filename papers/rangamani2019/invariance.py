"""Tables 2 and 3: the Riemannian spectral norm before and after rescaling the layers."""

from __future__ import annotations

import math
from typing import Any

import torch

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from papers.experiment import Context, Run, Tolerance
from papers.rangamani2019 import networks
from papers.rangamani2019.synthetic import objective

MEASURE = "riemannian-spectral-norm"
EUCLIDEAN = "hessian-spectral-norm"
DTYPES = ("float32", "float64")
# So small that an eigenvalue is known to far less than the difference allowed to it.
TOLERANCES = {"float32": 1e-5, "float64": 1e-12}
# Each factor as [numerator, denominator]; the first two of each are the paper's.
FACTORS = {
    "table2": [
        [[5, 1], [4, 1], [1, 20]],
        [[100, 1], [30, 1], [1, 3000]],
        [[4, 1], [2, 1], [1, 8]],
        [[1024, 1], [1, 32], [1, 32]],
    ],
    "table3": [
        [[5, 1], [4, 1], [3, 1], [2, 1], [1, 120]],
        [[50, 1], [24, 1], [30, 1], [1, 6], [1, 6000]],
        [[4, 1], [2, 1], [2, 1], [1, 4], [1, 4]],
        [[64, 1], [1, 2], [8, 1], [1, 16], [1, 16]],
    ],
}


def runs(quick: bool) -> list[Run]:
    """One run for each table."""
    shapes = {"table2": networks.F1, "table3": networks.C1}
    return [
        Run(
            name,
            {
                "network": shapes[name],
                "samples": 40 if quick else 500,
                "seed": 0,
                "factors": factors[::2] if quick else factors,
                "tol": TOLERANCES,
            },
            compute,
            on_cpu=True,
            tolerances={"float32": Tolerance(relative=1e-4, absolute=1e-5)},
        )
        for name, factors in FACTORS.items()
    ]


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """The measure at the network and at each rescaled one, in both precisions."""
    return {dtype: _compute(settings, dtype) for dtype in DTYPES}


def _compute(settings: dict[str, Any], dtype: str) -> dict[str, Any]:
    here = objective(settings, getattr(torch, dtype))
    chain = Chain.of(here.model())
    tol = settings["tol"][dtype]
    before, euclidean = _value(here, MEASURE, tol), _value(here, EUCLIDEAN, tol)
    rows = []
    for factors in settings["factors"]:
        moved = here.at(
            rescale_layers(here.parameters, chain, [top / low for top, low in factors])
        )
        after = _value(moved, MEASURE, tol)
        rows.append(
            {
                "factors": factors,
                "exact": all(_is_power_of_two(top / low) for top, low in factors),
                "value": after,
                "relative_difference": abs(after - before) / before,
                "euclidean_ratio": _value(moved, EUCLIDEAN, tol) / euclidean,
            }
        )
    return {"value": before, "loss": here.value(), "rows": rows}


def _value(one: fg.Objective, name: str, tol: float) -> float:
    options = {name: {"tol": tol}}
    value = fg.measure(one, name, options=options, strict=True)[name].value
    assert value is not None
    return value


def _is_power_of_two(factor: float) -> bool:
    return math.frexp(factor)[0] == 0.5
