"""Two trained minima change their ranking when one radial map changes the coordinates."""

from __future__ import annotations

import math
from typing import Any

from torch import Tensor, nn

import flatgauge as fg
from flatgauge.results import Status
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
# So close are two values that the change of coordinates has not moved.
SAME = 1e-6
DOES_NOT_APPLY, STAYS = "does not apply", "stays"


def settings(quick: bool) -> dict[str, Any]:
    """Networks so small that the library finds every diagonal exactly.

    In the new coordinates a network is no longer piecewise affine in its tensors, and a
    diagonal takes one product a parameter. For larger networks it would be estimated.
    """
    return {
        "pool": 1 if quick else 2,
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
    pool = settings["pool"]
    inputs, labels = flat_images(context, "train", settings["samples"], pool)
    tests = flat_images(context, "test", pool=pool)
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
                "test accuracy": accuracy(models[name], *tests),
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
            "uncertainty": found.uncertainty,
            "status": found.status.name,
            "message": found.message,
        }
        for request, found in report.measurements.items()
    }


def order(first: dict[str, Any], second: dict[str, Any]) -> int | None:
    """The sign of first - second; None where it is not known.

    It is known where both values are trusted, and further apart than two of their
    uncertainties.
    """
    pair = (first, second)
    if any(one["value"] is None or not Status[one["status"]].trusted for one in pair):
        return None
    gap = first["value"] - second["value"]
    if abs(gap) <= 2 * math.hypot(*(one["uncertainty"] or 0.0 for one in pair)):
        return None
    return 1 if gap > 0 else -1


def stays(before: dict[str, Any], after: dict[str, Any]) -> bool:
    """Whether a value is the same in both coordinates."""
    return math.isclose(before["value"], after["value"], rel_tol=SAME)


def fates(found: dict[str, Any], measures: list[str]) -> dict[str, str]:
    """Measure -> what the change of coordinates did to the ranking of the two minima."""
    return {name: _fate(found, name) for name in measures}


def kept_values(found: dict[str, Any]) -> tuple[list[str], list[str]]:
    """The measures that have a value in both coordinates: those that keep it, and all."""
    before, after = (found[time][found["flat"]] for time in ("before", "after"))
    valued = [
        name
        for name in before
        if before[name]["value"] is not None and after[name]["value"] is not None
    ]
    return [name for name in valued if stays(before[name], after[name])], valued


def _fate(found: dict[str, Any], name: str) -> str:
    flat, sharp = found["flat"], found["sharp"]
    before, after = (
        (found[time][flat][name], found[time][sharp][name])
        for time in ("before", "after")
    )
    if any(one["value"] is None for one in (*before, *after)):
        return DOES_NOT_APPLY
    orders = order(*before), order(*after)
    if None in orders:
        return "not decided"
    if orders[0] != orders[1]:
        return "swapped"
    return STAYS if stays(before[0], after[0]) else "not swapped, value changed"


def spectral_norm(found: dict[str, Any]) -> float:
    return found[RANKED_BY]["value"]
