"""Two trained minima change their ranking when one radial map changes the coordinates."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

import flatgauge as fg
from flatgauge.vectors import add, norm
from papers.dinh2017.networks import accuracy, mlp, train
from papers.dinh2017.orbit import flat_images, output_change
from papers.dinh2017.reparametrized import Reparametrized
from papers.experiment import Context

MEASURES = [
    "hessian-trace",
    "hessian-spectral-norm",
    "matrix-normalized-sharpness",
    "normalized-sharpness",
    "fisher-rao-norm",
    "fisher-rao-norm[diagonal=True]",
    "riemannian-spectral-norm[metric=layer]",
    "riemannian-spectral-norm[metric=node]",
    "spectral-norm-product",
]
RANKED_BY = "hessian-spectral-norm"


def settings(quick: bool) -> dict[str, Any]:
    return {
        "hidden": 16,
        "samples": 500 if quick else 1000,
        "trainings": {
            "small batch": {"batch": 20, "epochs": 60, "rate": 3e-3, "seed": 0},
            "large batch": {"batch": 1000, "epochs": 400, "rate": 1e-2, "seed": 1},
        },
        "excess": 2.0,
        "rho": 0.9,
        "tolerance": 1e-8,
        "measures": MEASURES,
        "seed": 0,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    inputs, labels = flat_images(context, "train", settings["samples"])
    models = {
        name: trained(inputs, labels, settings["hidden"], own)
        for name, own in settings["trainings"].items()
    }
    objectives = {
        name: fg.Objective(model, (inputs, labels)) for name, model in models.items()
    }
    before = {name: measured(one, settings) for name, one in objectives.items()}
    flat, sharp = sorted(before, key=lambda name: spectral_norm(before[name]))
    radii = swapping_radii(objectives, flat, sharp, before, settings)
    coordinates = fg.Objective(Reparametrized(models[flat], **radii), (inputs, labels))
    moved = {name: coordinates.at(in_ball(one)) for name, one in objectives.items()}
    after = {name: measured(one, settings) for name, one in moved.items()}
    return {
        "flat": flat,
        "sharp": sharp,
        "radii": radii,
        "factor": (radii["rho"] / radii["rhat"]) ** 2,
        "networks": {
            name: {
                "loss": objective.value(),
                "gradient": float(norm(objective.gradient())),
                "train accuracy": accuracy(models[name], inputs, labels),
                "test accuracy": accuracy(models[name], *flat_images(context, "test")),
                "loss change": abs(moved[name].value() - objective.value()),
                "output change": output_change(objective, moved[name], inputs),
            }
            for name, objective in objectives.items()
        },
        "before": before,
        "after": after,
    }


def trained(
    inputs: Tensor, labels: Tensor, hidden: int, own: dict[str, Any]
) -> nn.Module:
    model = mlp([inputs.shape[1], hidden, 10], own["seed"]).to(inputs)
    return train(model, inputs, labels, **own)


def swapping_radii(
    objectives: dict[str, fg.Objective],
    flat: str,
    sharp: str,
    before: dict[str, dict[str, Any]],
    settings: dict[str, Any],
) -> dict[str, float]:
    """A ball around the flatter minimum that leaves the other one outside.

    The factor (ρ/r̂)² makes the flatter one `excess` times as sharp as the other.
    """
    step = add(objectives[sharp].parameters, objectives[flat].parameters, -1.0)
    delta = float(norm(step)) / 2
    ratio = spectral_norm(before[sharp]) / spectral_norm(before[flat])
    rho = settings["rho"] * delta
    return {
        "rhat": rho / math.sqrt(settings["excess"] * ratio),
        "delta": delta,
        "rho": rho,
    }


def in_ball(objective: fg.Objective) -> dict[str, Tensor]:
    """The same point under the names of the wrapped network: g moves neither of them."""
    return {f"network.{name}": tensor for name, tensor in objective.parameters.items()}


def measured(objective: fg.Objective, settings: dict[str, Any]) -> dict[str, Any]:
    """Values with their status, and what the library says about them."""
    tolerance = {"tol": settings["tolerance"]}
    report = fg.measure(
        objective,
        *settings["measures"],
        options={
            "hessian-spectral-norm": tolerance,
            "riemannian-spectral-norm": tolerance,
        },
        seed=settings["seed"],
    )
    return {
        request: {
            "value": found.value,
            "status": found.status.name,
            "message": found.message,
        }
        for request, found in report.measurements.items()
    }


def spectral_norm(found: dict[str, Any]) -> float:
    return found[RANKED_BY]["value"]
