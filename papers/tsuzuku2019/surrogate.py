"""Section 5.4: which changes of the outputs leave the loss (20) and (17) alone."""

from __future__ import annotations

from typing import Any

import torch

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.vectors import Params, generator
from papers.experiment import Context
from papers.tsuzuku2019.network import data_of, facts, trained

LOSSES = ("cross-entropy", "normalized-cross-entropy")
SHARPNESS = "normalized-sharpness"


def surrogate(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Both losses and (17) under them, at a trained network and at changed outputs.

    Outputs are scaled by c, shifted by a constant s in the last bias, and shifted by
    ⟨v, a⟩, a the last hidden layer, in the last matrix: W + 1vᵀ. No prediction changes.
    """
    model = trained(context, settings["network"])
    data = data_of(context, settings["network"])
    base = fg.Objective(model, data)
    points = _points(base, Chain.of(model), settings)
    predictions = {name: _predicted(base.at(one), data) for name, one in points.items()}
    changed = {
        name: int((found != predictions["trained"]).sum())
        for name, found in predictions.items()
    }
    return {
        "network": facts(base, *data),
        "changed_predictions": changed,
        "losses": {
            loss: {
                name: _measured(base.with_loss(loss).at(one))
                for name, one in points.items()
            }
            for loss in LOSSES
        },
    }


def _points(
    base: fg.Objective, chain: Chain, settings: dict[str, Any]
) -> dict[str, Params]:
    last, point = chain.layers[-1], base.parameters
    assert last.bias is not None
    weight, bias, factor = point[last.weight], point[last.bias], settings["factor"]
    direction = torch.randn(
        weight.shape[1], generator=generator(settings["seed"]), dtype=torch.float64
    ).to(weight)
    direction *= weight.norm() / (direction.norm() * len(weight) ** 0.5)
    return {
        "trained": point,
        "scaled": {**point, last.weight: factor * weight, last.bias: factor * bias},
        "shifted": {**point, last.bias: bias + settings["shift"]},
        "shifted by the hidden layer": {**point, last.weight: weight + direction},
    }


def _predicted(
    at: fg.Objective, data: tuple[torch.Tensor, torch.Tensor]
) -> torch.Tensor:
    with torch.no_grad():
        return at.model()(data[0]).argmax(1)


def _measured(at: fg.Objective) -> dict[str, Any]:
    options = {"surrogate": "objective"}
    plain = fg.measure(at, SHARPNESS, options={SHARPNESS: options}, strict=True)
    centred = fg.measure(
        at,
        SHARPNESS,
        options={SHARPNESS: {**options, "center_output": True}},
        strict=True,
    )
    return {
        "loss": at.value(),
        "sharpness": plain[SHARPNESS].value,
        "centred": centred[SHARPNESS].value,
    }
