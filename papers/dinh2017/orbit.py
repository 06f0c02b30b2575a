"""One trained network along its orbit: which measures move, and which do not."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.measures.registry import find_measure
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers, rescale_nodes
from flatgauge.vectors import Params, norm, size
from papers.data import images
from papers.dinh2017.networks import accuracy, mlp, train
from papers.experiment import Context

MEASURES = [
    "hessian-trace",
    "hessian-spectral-norm",
    "epsilon-sharpness",
    "matrix-normalized-sharpness",
    "normalized-sharpness",
    "fisher-rao-norm",
    "fisher-rao-norm[diagonal=True]",
    "riemannian-spectral-norm[metric=layer]",
    "riemannian-spectral-norm[metric=node]",
    "riemannian-sharpness[metric=node]",
    "spectral-norm-product",
]
KINDS = {"layer": "layer-rescale", "node": "node-rescale"}


def training(quick: bool) -> dict[str, Any]:
    """One hidden layer without biases, as in section 4 of the paper."""
    return {
        "hidden": 24 if quick else 32,
        "samples": 500 if quick else 1000,
        "epochs": 60,
        "batch": 50,
        "rate": 3e-3,
        "seed": 0,
    }


def settings(quick: bool, kind: str) -> dict[str, Any]:
    return {
        "kind": kind,
        **training(quick),
        "exponents": [-2, -1, 0, 1, 2] if quick else [k / 3 for k in range(-6, 7)],
        "tolerance": 1e-10,
        "measures": MEASURES,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    objective, inputs, labels = trained(context, settings)
    model = objective.model()
    alphas = [10.0**exponent for exponent in settings["exponents"]]
    twins = [objective.at(moved(model, settings["kind"], alpha)) for alpha in alphas]
    reports = [measured(twin, settings) for twin in [objective, *twins]]
    return {
        "parameters": size(objective.parameters),
        "train accuracy": accuracy(model, inputs, labels),
        "test accuracy": accuracy(model, *flat_images(context, "test")),
        "alphas": alphas,
        "loss": objective.value(),
        "gradient": float(norm(objective.gradient())),
        "loss drift": max(abs(t.value() / objective.value() - 1) for t in twins),
        "output drift": max(output_change(objective, twin, inputs) for twin in twins),
        "measures": [
            row(request, settings["kind"], reports) for request in settings["measures"]
        ],
    }


def trained(
    context: Context, settings: dict[str, Any]
) -> tuple[fg.Objective, Tensor, Tensor]:
    """The trained network on the images that it was trained on."""
    inputs, labels = flat_images(context, "train", settings["samples"])
    model = train(
        mlp([inputs.shape[1], settings["hidden"], 10], settings["seed"]).to(inputs),
        inputs,
        labels,
        epochs=settings["epochs"],
        batch=settings["batch"],
        rate=settings["rate"],
        seed=settings["seed"],
    )
    return fg.Objective(model, (inputs, labels)), inputs, labels


def flat_images(
    context: Context, part: str, limit: int | None = None, pool: int = 1
) -> tuple[Tensor, Tensor]:
    """Images as rows, each square of `pool` by `pool` pixels replaced by its mean."""
    pixels, labels = images(context, "mnist", part, limit)
    return F.avg_pool2d(pixels.double(), pool).flatten(1), labels


def moved(model: nn.Module, kind: str, alpha: float) -> Params:
    """The first layer times α, the second divided by it; or each unit by its own power.

    Node-wise, the hidden units are scaled by α^s with s spread evenly over [-1, 1].
    """
    point = {name: tensor.detach() for name, tensor in model.named_parameters()}
    chain = Chain.of(model)
    if kind == "layer":
        return rescale_layers(point, chain, (alpha, 1 / alpha))
    units = point[chain.layers[0].weight].shape[0]
    powers = torch.linspace(-1, 1, units, dtype=torch.float64)
    return rescale_nodes(point, chain, [alpha**powers])


def measured(objective: fg.Objective, settings: dict[str, Any]) -> fg.Report:
    tolerance = {"tol": settings["tolerance"]}
    return fg.measure(
        objective,
        *settings["measures"],
        options={
            "hessian-spectral-norm": tolerance,
            "riemannian-spectral-norm": tolerance,
        },
        seed=settings["seed"],
    )


def output_change(first: fg.Objective, second: fg.Objective, inputs: Tensor) -> float:
    """The largest change of a sample's outputs, relative to their usual size."""
    with torch.no_grad():
        before, after = first.model()(inputs), second.model()(inputs)
    usual = before.norm(dim=1).square().mean().sqrt()
    return float((after - before).norm(dim=1).max() / usual)


def row(request: str, kind: str, reports: list[fg.Report]) -> dict[str, Any]:
    """Values along the orbit over the value at α = 1, beside what is claimed."""
    base, *others = [report[request] for report in reports]
    claims = reports[0].extras["measures"][request]["invariant_to"]
    logarithmic = find_measure(base.measure).logarithmic
    ratios = [ratio(base.value, one.value, logarithmic) for one in others]
    known = [value for value in ratios if value is not None]
    return {
        "measure": request,
        "value": base.value,
        "ratios": ratios,
        "claims": KINDS[kind] in claims,
        "factor": max(map(factor, known)) if known else None,
        "drift": max(abs(value - 1) for value in known) if known else None,
        "trusted": all(one.status.trusted for one in [base, *others]),
    }


def factor(value: float) -> float:
    """By how much a ratio is away from 1, upwards or downwards."""
    return max(value, 1 / value) if value > 0 else math.inf


def ratio(base: float | None, value: float | None, logarithmic: bool) -> float | None:
    if base is None or value is None:
        return None
    if logarithmic:
        return math.exp(value - base)
    return value / base if base else None
