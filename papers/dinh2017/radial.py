"""Figure 1 of the supplement: the radial map, and what is said of it, as numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.vectors import Params
from papers.dinh2017.networks import mlp, normal
from papers.dinh2017.radial_map import RadialMap, psi, psi_derivative
from papers.dinh2017.reparametrized import Reparametrized
from papers.experiment import Context


def settings() -> dict[str, Any]:
    """The paper does not print its radii: these look like its drawing."""
    return {
        "rhat": 0.3,
        "delta": 1.0,
        "rho": 0.7,
        "dimensions": [2, 7, 50],
        "points": 200,
        "step": 1e-6,
        "grid": 25,
        "resolution": 61,
        "reach": 1.5,
        "seed": 0,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    radii = {name: settings[name] for name in ("rhat", "delta", "rho")}
    return {
        **radii,
        "checks": {
            str(dimension): checks(dimension, radii, settings)
            for dimension in settings["dimensions"]
        },
        "hessian": {
            "factor": (radii["rho"] / radii["rhat"]) ** 2,
            "error at a minimum": hessian_error(radii, 0.0, settings["seed"]),
            "error elsewhere": hessian_error(radii, 1.0, settings["seed"]),
        },
        "lines": lines(radii, settings),
    }


def checks(
    dimension: int, radii: dict[str, float], settings: dict[str, Any]
) -> dict[str, float]:
    """The largest errors over points up to 2δ from the centre.

    "moved" is the largest distance that a point outside the ball is moved by.
    """
    seed, count = settings["seed"], settings["points"]
    center = {"x": normal(dimension, seed=seed)}
    radial = RadialMap(center, **radii)
    directions = normal(count, dimension, seed=seed + 1)
    directions /= directions.norm(dim=1, keepdim=True)
    # At half steps, so that no point lies within a step of a kink of ψ.
    distances = 2 * radii["delta"] * (torch.arange(count).double() + 0.5) / count
    found = [
        one_point(radial, {"x": center["x"] + distance * direction}, settings["step"])
        for distance, direction in zip(distances.tolist(), directions, strict=True)
    ]
    outside = distances > radii["delta"]
    worst = {name: max(one[name] for one in found) for name in found[0]}
    moved = [one["moved"] for one, far in zip(found, outside, strict=True) if far]
    return {**worst, "moved": max(moved)}


def one_point(radial: RadialMap, point: Params, step: float) -> dict[str, float]:
    image, back = radial(point), radial.inverse()
    jacobian = radial.jacobian(point)
    differences = finite_differences(radial, point, step)
    determinant = float(torch.linalg.slogdet(jacobian).logabsdet)
    return {
        "moved": float((image["x"] - point["x"]).abs().max()),
        "inverse": float((back(image)["x"] - point["x"]).abs().max()),
        "jacobian": float((jacobian - differences).abs().max()),
        "scalar": float((scalar_reading(radial, point) - differences).abs().max()),
        "determinant": abs(math.expm1(radial.log_determinant(point) - determinant)),
    }


def finite_differences(radial: RadialMap, point: Params, step: float) -> Tensor:
    columns = []
    for direction in torch.eye(point["x"].numel(), dtype=torch.float64):
        ahead, behind = (
            radial({"x": point["x"] + sign * step * direction})["x"] for sign in (1, -1)
        )
        columns.append((ahead - behind) / (2 * step))
    return torch.stack(columns, dim=1)


def scalar_reading(radial: RadialMap, point: Params) -> Tensor:
    """The printed Jacobian if θ were a column: (θ - θ̂)ᵀ(θ - θ̂) is then the number r².

    The two terms in b cancel, and ψ' I is left.
    """
    radius = (point["x"] - radial.center["x"]).norm()
    slope = psi_derivative(radius, radial.rhat, radial.delta, radial.rho)
    return slope * torch.eye(point["x"].numel(), dtype=torch.float64)


def hessian_error(radii: dict[str, float], offset: float, seed: int) -> float:
    """How far the Hessian of L ∘ g⁻¹ at the centre is from (ρ/r̂)² H, relatively."""
    model = mlp([2, 3, 2], seed, bias=True)
    inputs = normal(40, 2, seed=seed + 1)
    with torch.no_grad():
        targets = model(inputs) + offset
    before = dense_hessian(fg.Objective(model, (inputs, targets), loss="mse"))
    wrapped = Reparametrized(model, **radii)
    after = dense_hessian(fg.Objective(wrapped, (inputs, targets), loss="mse"))
    expected = (radii["rho"] / radii["rhat"]) ** 2 * before
    return float((after - expected).abs().max() / expected.abs().max())


def lines(radii: dict[str, float], settings: dict[str, Any]) -> dict[str, Any]:
    """ψ on [0, reach], and the images of horizontal lines of the plane around θ̂ = 0."""
    reach = settings["reach"]
    radial = RadialMap({"x": torch.zeros(2, dtype=torch.float64)}, **radii)
    along = torch.linspace(-reach, reach, settings["resolution"], dtype=torch.float64)
    heights = torch.linspace(-reach, reach, settings["grid"], dtype=torch.float64)
    distances = torch.tensor([0, radii["rhat"], radii["delta"], reach]).double()
    return {
        "profile": [rounded(distances), rounded(psi(distances, **radii))],
        "horizontal": [
            [
                rounded(
                    torch.stack([radial({"x": point})["x"] for point in line])[:, k]
                )
                for k in (0, 1)
            ]
            for height in heights
            for line in [torch.stack([along, height.expand_as(along)], dim=1)]
        ],
    }


def rounded(values: Tensor) -> list[float]:
    return [round(value, 3) + 0.0 for value in values.tolist()]
