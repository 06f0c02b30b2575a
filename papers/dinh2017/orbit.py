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
from papers.dinh2017.networks import accuracy, convolutional, mlp, train
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


# Without biases, as in section 4 of the paper; with them, as in supplement B; and with
# convolutions.
NETWORKS: dict[str, dict[str, Any]] = {
    "linear": {"convolutions": False, "hidden": [32], "bias": False, "pool": 1},
    "biases": {"convolutions": False, "hidden": [24, 16], "bias": True, "pool": 1},
    "convolutions": {"convolutions": True, "hidden": [6, 12], "bias": True, "pool": 2},
}


def settings(quick: bool, kind: str, network: str = "linear") -> dict[str, Any]:
    step = 1 if network == "linear" else 2
    short = range(-2, 3, step)
    return {
        "kind": kind,
        **training(quick, network),
        "exponents": list(short) if quick else [k / 3 for k in range(-6, 7, step)],
        "tolerance": 1e-10,
        "measures": MEASURES,
    }


def training(quick: bool, network: str) -> dict[str, Any]:
    own = NETWORKS[network]
    if quick:
        own = {**own, "hidden": [max(4, 3 * n // 4) for n in own["hidden"]], "pool": 1}
    return {
        **own,
        "samples": 500 if quick else 1000,
        "epochs": 60,
        "batch": 50,
        "rate": 3e-3,
        "seed": 0,
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
        "test accuracy": accuracy(model, *inputs_for(context, settings, "test")),
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
    inputs, labels = inputs_for(context, settings, "train", settings["samples"])
    model = train(
        untrained(inputs, settings),
        inputs,
        labels,
        epochs=settings["epochs"],
        batch=settings["batch"],
        rate=settings["rate"],
        seed=settings["seed"],
    )
    return fg.Objective(model, (inputs, labels)), inputs, labels


def untrained(inputs: Tensor, settings: dict[str, Any]) -> nn.Module:
    """A network of the declared kind that fits the inputs."""
    hidden, seed, bias = settings["hidden"], settings["seed"], settings["bias"]
    if settings["convolutions"]:
        return convolutional(inputs, hidden, seed, bias).to(inputs)
    return mlp([inputs.shape[1], *hidden, 10], seed, bias).to(inputs)


def inputs_for(
    context: Context, settings: dict[str, Any], part: str, limit: int | None = None
) -> tuple[Tensor, Tensor]:
    """Images as the network reads them: as they are, or as rows."""
    kind = pooled_images if settings["convolutions"] else flat_images
    return kind(context, part, limit, settings["pool"])


def pooled_images(
    context: Context, part: str, limit: int | None = None, pool: int = 1
) -> tuple[Tensor, Tensor]:
    """Images [n, 1, height, width], squares of `pool` pixels replaced by their mean."""
    pixels, labels = images(context, "mnist", part, limit)
    return F.avg_pool2d(pixels.double(), pool), labels


def flat_images(
    context: Context, part: str, limit: int | None = None, pool: int = 1
) -> tuple[Tensor, Tensor]:
    """The same images as rows."""
    pixels, labels = pooled_images(context, part, limit, pool)
    return pixels.flatten(1), labels


def moved(model: nn.Module, kind: str, alpha: float) -> Params:
    """The first layer times α, the last divided by it; or each unit by its own power.

    Layer-wise, every hidden bias is multiplied by α. Node-wise, the units of every
    hidden layer are scaled by α^s with s spread evenly over [-1, 1].
    """
    point = {name: tensor.detach() for name, tensor in model.named_parameters()}
    chain = Chain.of(model)
    if kind == "layer":
        between = [1.0] * (len(chain) - 2)
        return rescale_layers(point, chain, (alpha, *between, 1 / alpha))
    units = [point[layer.weight].shape[0] for layer in chain.layers[:-1]]
    powers = [torch.linspace(-1, 1, count, dtype=torch.float64) for count in units]
    return rescale_nodes(point, chain, [alpha**power for power in powers])


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
