"""Several trained minima, ranked by every measure, before and after four moves.

None of the moves changes what a network computes from an image: layers are rescaled,
radial maps change the coordinates around every minimum, and the inputs are standardized
or whitened while the first layer takes that back.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import Params, add, generator, norm
from papers.dinh2017.networks import accuracy
from papers.dinh2017.orbit import flat_images
from papers.dinh2017.radial_map import RadialMap
from papers.dinh2017.ranking import (
    MEASURES,
    RANKED_BY,
    in_ball,
    measured,
    spectral_norm,
    trained,
)
from papers.dinh2017.representation import representations
from papers.experiment import Context

MOVES = ("rescaled layers", "radial maps", "standardized inputs", "whitened inputs")
# How close the spectral norm of a rescaled network must come to the one that is asked for.
CLOSE, MOST_STEPS = 1e-6, 60


class InBalls(nn.Module):
    """η ↦ f(g⁻¹(η), x), where g⁻¹ is a product of radial maps on balls that do not meet.

    Args:
        model: f.
        radials: the maps, in any order.
    """

    def __init__(self, model: nn.Module, radials: list[RadialMap]):
        super().__init__()
        self.network = model
        self.radials = radials

    def forward(self, inputs: Tensor) -> Tensor:
        params: Params = dict(self.network.named_parameters())
        for radial in self.radials:
            params = radial(params)
        return functional_call(self.network, params, (inputs,))


def settings(quick: bool) -> dict[str, Any]:
    batches = [20, 50, 1000] if quick else [10, 20, 50, 100, 300, 1000]
    return {
        "pool": 2 if quick else 4,
        "hidden": 8 if quick else 16,
        "samples": 300 if quick else 1000,
        "trainings": [
            {
                "batch": batch,
                "epochs": 400 if batch >= 300 else 60,
                "rate": 1e-2 if batch >= 300 else 3e-3,
                "seed": seed,
            }
            for seed, batch in enumerate(batches)
        ],
        "share": 0.45,
        "apart": 2.0,
        "orders": 1 if quick else 10,
        "ridge": 1e-3,
        "tolerance": 1e-8,
        "measures": MEASURES,
        "seed": 0,
    }


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    pool = settings["pool"]
    inputs, labels = flat_images(context, "train", settings["samples"], pool)
    tests = flat_images(context, "test", pool=pool)
    models = [
        trained(inputs, labels, settings["hidden"], own)
        for own in settings["trainings"]
    ]
    minima = [fg.Objective(model, (inputs, labels)) for model in models]
    before = [measured(one, settings) for one in minima]
    norms = [spectral_norm(one) for one in before]
    found: dict[str, Any] = {}
    for name, move in movers(minima, norms, inputs, labels, settings).items():
        twins = [move(index) for index in range(len(minima))]
        found[name] = {
            "values": [measured(twin.objective, settings) for twin in twins],
            "output change": max(
                changed(Twin(one, inputs), twin)
                for one, twin in zip(minima, twins, strict=True)
            ),
        }
    return {
        "networks": [
            {
                "loss": one.value(),
                "gradient": float(norm(one.gradient())),
                "train accuracy": accuracy(model, inputs, labels),
                "test accuracy": accuracy(model, *tests),
            }
            for one, model in zip(minima, models, strict=True)
        ],
        "before": before,
        "moves": found,
        "orders": other_orders(minima, norms, inputs, labels, settings),
    }


@dataclass(frozen=True)
class Twin:
    """The same function of an image at another place, with the inputs that it reads."""

    objective: fg.Objective
    inputs: Tensor


def movers(
    minima: list[fg.Objective],
    norms: list[float],
    inputs: Tensor,
    labels: Tensor,
    settings: dict[str, Any],
) -> dict[str, Callable[[int], Twin]]:
    """Move -> index of a minimum -> its twin."""
    goals = raised(norms, settings["apart"])
    opposite = sorted(range(len(norms)), key=lambda index: -norms[index])
    wrapped = in_balls(minima, norms, opposite, inputs, labels, settings)
    penalty = settings["ridge"] * torch.eye(inputs.shape[1]).to(inputs)
    maps = representations(inputs.T.cov() + penalty)
    standard, white = maps["standardized"], maps["whitened"]
    moves: list[Callable[[int], Twin]] = [
        lambda index: Twin(sharpened_to(minima[index], goals[index], settings), inputs),
        lambda index: Twin(wrapped.at(in_ball(minima[index])), inputs),
        lambda index: reading(minima[index], inputs, labels, standard),
        lambda index: reading(minima[index], inputs, labels, white),
    ]
    return dict(zip(MOVES, moves, strict=True))


def raised(norms: list[float], apart: float) -> list[float]:
    """Goals above all norms, in the opposite order: the flattest becomes the sharpest."""
    order = sorted(range(len(norms)), key=lambda index: -norms[index])
    goals = [0.0] * len(norms)
    for place, index in enumerate(order):
        goals[index] = max(norms) * apart ** (place + 1)
    return goals


def sharpened_to(
    objective: fg.Objective, goal: float, settings: dict[str, Any]
) -> fg.Objective:
    """The twin (αθ₁, θ₂/α) whose Hessian has the spectral norm `goal`.

    λmax grows as 1/α² for small α, so α √(λmax / goal) is closer to the solution than α.
    """
    chain, logarithm, twin = Chain.of(objective.model()), 0.0, objective
    for _ in range(MOST_STEPS):
        alphas = (math.exp(logarithm), math.exp(-logarithm))
        twin = objective.at(rescale_layers(objective.parameters, chain, alphas))
        ratio = top(twin, settings) / goal
        if abs(ratio - 1) < CLOSE:
            break
        logarithm += math.log(ratio) / 2
    return twin


def top(objective: fg.Objective, settings: dict[str, Any]) -> float:
    """The spectral norm of the Hessian."""
    report = fg.measure(objective, f"{RANKED_BY}[tol={settings['tolerance']}]")
    (found,) = report.measurements.values()
    assert found.value is not None
    return found.value


def in_balls(
    minima: list[fg.Objective],
    norms: list[float],
    order: list[int],
    inputs: Tensor,
    labels: Tensor,
    settings: dict[str, Any],
) -> fg.Objective:
    """Coordinates in which the minima have the same spectral norms in another order.

    There is one ball around each minimum, none of which meets another one. The flattest
    of all by the new spectral norms is minimum order[0], and so on; a minimum whose norm
    is to become λ' has the factor (ρ/r̂)² = λ' / λ.
    """
    points = [one.parameters for one in minima]
    distances = {
        pair: float(norm(add(points[pair[0]], points[pair[1]], -1.0)))
        for pair in itertools.combinations(range(len(points)), 2)
    }
    goals = dict(zip(order, sorted(norms), strict=True))
    maps = []
    for index, point in enumerate(points):
        nearest = min(d for pair, d in distances.items() if index in pair)
        delta = settings["share"] * nearest
        ratio = math.sqrt(goals[index] / norms[index])
        rhat = 0.9 * delta * min(1.0, 1 / ratio)
        maps.append(RadialMap(detached(point), rhat, delta, ratio * rhat))
    return fg.Objective(InBalls(minima[0].model(), maps), (inputs, labels))


def other_orders(
    minima: list[fg.Objective],
    norms: list[float],
    inputs: Tensor,
    labels: Tensor,
    settings: dict[str, Any],
) -> list[dict[str, list[int]]]:
    """Random orders, as asked for and as measured in coordinates made for them."""
    random = generator(settings["seed"])
    found = []
    for _ in range(settings["orders"]):
        asked = torch.randperm(len(minima), generator=random).tolist()
        wrapped = in_balls(minima, norms, asked, inputs, labels, settings)
        values = [top(wrapped.at(in_ball(one)), settings) for one in minima]
        order = sorted(range(len(values)), key=lambda index: values[index])
        found.append({"asked": asked, "measured": order})
    return found


def detached(point: Params) -> Params:
    return {name: tensor.detach().clone() for name, tensor in point.items()}


def reading(
    objective: fg.Objective, inputs: Tensor, labels: Tensor, matrix: Tensor
) -> Twin:
    """The same function of z = A x: the first layer W₁ becomes W₁ A⁻¹."""
    first = Chain.of(objective.model()).layers[0].weight
    weight = torch.linalg.solve(matrix.T, objective.parameters[first].T).T
    mapped = inputs @ matrix.T
    twin = fg.Objective(objective.model(), (mapped, labels))
    return Twin(twin.at({**objective.parameters, first: weight}), mapped)


def changed(first: Twin, second: Twin) -> float:
    """The largest change of a sample's outputs, relative to their usual size."""
    with torch.no_grad():
        before, after = (one.objective.model()(one.inputs) for one in (first, second))
    usual = before.norm(dim=1).square().mean().sqrt()
    return float((after - before).norm(dim=1).max() / usual)
