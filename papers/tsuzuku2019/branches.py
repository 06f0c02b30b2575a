"""The branch example, equations (26) to (30): one layer as the sum of two."""

from __future__ import annotations

from typing import Any

from torch import nn

import flatgauge as fg
from flatgauge.symmetry.maps.branch import split_branches
from papers.experiment import Context
from papers.tsuzuku2019.network import data_of, facts, trained

NORMALIZED = ("normalized-sharpness", "matrix-normalized-sharpness")
MEASURES = (
    *NORMALIZED,
    "fisher-rao-norm[diagonal=True]",
    "fisher-rao-norm",
    "hessian-trace",
    "hessian-spectral-norm",
    "riemannian-spectral-norm[metric=layer]",
    "riemannian-spectral-norm[metric=node]",
)


def branches(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Every measure at splits W = cW + (1-c)W of one layer of a trained network.

    Measured once over the split layer's own weights, which is the paper's (26), and
    once over the whole network.
    """
    model = trained(context, settings)
    data = data_of(context, settings)
    whole = fg.Objective(model, data)
    weights = [name for name, one in model.named_parameters() if one.ndim == 2]
    layer = weights[settings["layer"]].removesuffix("weight")
    splits = []
    for share in settings["shares"]:
        twin = split_branches(model, settings["layer"], share)
        splits.append(
            {
                "share": share,
                "loss": fg.Objective(twin, data).value(),
                "layer": _values(twin, data, settings, layer),
                "network": _values(twin, data, settings, ""),
            }
        )
    return {
        "network": facts(whole, *data),
        "unsplit": {
            "layer": _values(model, data, settings, layer),
            "network": _values(model, data, settings, ""),
        },
        "splits": splits,
    }


def _values(
    model: nn.Module, data: Any, settings: dict[str, Any], prefix: str
) -> dict[str, Any]:
    """The measures over the parameters whose names begin with `prefix`."""
    objective = fg.Objective(model, data, params=lambda name: name.startswith(prefix))
    options: dict[str, dict[str, Any]] = {
        name: {"surrogate": "objective"} for name in NORMALIZED
    }
    for name in ("hessian-spectral-norm", "riemannian-spectral-norm"):
        options[name] = {"tol": settings["tol"]}
    report = fg.measure(objective, *MEASURES, options=options, strict=True)
    found = {name: report[name].value for name in MEASURES}
    paper_loss = fg.measure(
        objective.with_loss("normalized-cross-entropy"), *NORMALIZED, strict=True
    )
    for name in NORMALIZED:
        found[f"{name}, normalized loss"] = paper_loss[name].value
    return found
