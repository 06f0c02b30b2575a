"""Volume ε-flatness: the flat region of ½(θ₁θ₂ - 1)² has no finite volume."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.solvers.volume import star_volume
from flatgauge.vectors import Params
from papers.dinh2017.box_volume import sublevel_volume
from papers.experiment import Context


def settings(quick: bool) -> dict[str, Any]:
    return {
        "epsilon": 0.02,
        "sides": [2, 4, 16, 64, 256],
        "samples": 10**6 if quick else 3 * 10**7,
        "directions": 1000 if quick else 5000,
        "angles": 10**6,
        "seed": 0,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    return {
        "sides": [
            one_side(float(side), settings, seed=settings["seed"] + index)
            for index, side in enumerate(settings["sides"])
        ],
        "orbit": images_of_a_box(settings),
    }


def one_side(side: float, settings: dict[str, Any], seed: int) -> dict[str, Any]:
    """The volume of {L < ε} in (0, R)²: closed form, sampled, and what rays see."""
    level = settings["epsilon"]
    box = sublevel_volume(
        lambda points: 0.5 * (points[:, 0] * points[:, 1] - 1) ** 2,
        (0.0, 0.0),
        (side, side),
        level,
        settings["samples"],
        seed,
    )
    star = star_volume(
        lambda step: loss(step, side),
        {"x": torch.zeros(2, dtype=torch.float64)},
        level,
        2 * side,
        directions=settings["directions"],
        seed=seed,
    )
    return {
        "side": side,
        "closed form": closed_form(side, level),
        "sampled": box.volume,
        "sampled error": box.standard_error,
        "rays": math.exp(star.log_volume),
        "rays error": math.exp(star.log_volume) * star.standard_error,
        "rays by quadrature": seen_from_one(side, level, settings["angles"]),
    }


def closed_form(side: float, level: float) -> float:
    """2s + 4s ln R - (1+s) ln(1+s) + (1-s) ln(1-s), s = sqrt(2ε)."""
    s = math.sqrt(2 * level)
    rest = (1 - s) * math.log1p(-s) - (1 + s) * math.log1p(s)
    return 2 * s + 4 * s * math.log(side) + rest


def loss(step: Params, side: float) -> float:
    """½(θ₁θ₂ - 1)² at (1, 1) + step, and no value outside the box."""
    first, second = (step["x"] + 1).tolist()
    inside = 0 < first < side and 0 < second < side
    return 0.5 * (first * second - 1) ** 2 if inside else math.inf


def seen_from_one(side: float, level: float, angles: int) -> float:
    """½ ∫ r(φ)² dφ with the exact first exit along the ray from (1, 1) at angle φ.

    On the ray θ₁θ₂ = 1 + t (c + s) + t² c s, so that it meets 1 ± sqrt(2ε) at the roots
    of two quadratics, and a wall of the box at the root of a linear equation.
    """
    angle = 2 * math.pi * (torch.arange(angles, dtype=torch.float64) + 0.5) / angles
    cosine, sine = angle.cos(), angle.sin()
    exits = [wall(cosine, side), wall(sine, side)]
    square, linear = cosine * sine, cosine + sine
    for target in (math.sqrt(2 * level), -math.sqrt(2 * level)):
        root = (linear**2 + 4 * square * target).sqrt()
        # Both roots in the form that does not cancel; NaN where the ray misses.
        q = -0.5 * (linear + torch.where(linear < 0, -root, root))
        exits += [positive(q / square), positive(-target / q)]
    radius = torch.stack(exits).amin(dim=0)
    return float(radius.square().mean() * math.pi)


def wall(slope: Tensor, side: float) -> Tensor:
    return torch.where(slope > 0, (side - 1) / slope, -1 / slope)


def positive(roots: Tensor) -> Tensor:
    return torch.where(roots > 0, roots, math.inf)


def images_of_a_box(settings: dict[str, Any]) -> dict[str, Any]:
    """Our measure on the network θ₂ relu(θ₁ x): disjoint images of one box."""
    net = nn.Sequential(
        nn.Linear(1, 1, bias=False, dtype=torch.float64),
        nn.ReLU(),
        nn.Linear(1, 1, bias=False, dtype=torch.float64),
    )
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.fill_(1.0)
    one = torch.ones(1, 1, dtype=torch.float64)
    # The library's "mse" has no factor ½.
    found = fg.measure(
        fg.Objective(net, (one, one), loss="mse"),
        f"volume-flatness[epsilon={2 * settings['epsilon']}]",
        seed=settings["seed"],
    )
    (measurement,) = found.measurements.values()
    totals = measurement.details["orbit_sum"]
    return {
        "half width": measurement.details["orbit_box_half_width"],
        "images": [count for count, _ in totals],
        "volumes": [math.exp(total) for _, total in totals],
    }
