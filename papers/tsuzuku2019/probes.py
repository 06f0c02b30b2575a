"""Random estimates of diag(H), one probe at a time."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

import flatgauge as fg
from flatgauge.losses import RowLoss
from flatgauge.vectors import (
    Params,
    add,
    generator,
    map_tensors,
    multiply,
    scale,
    zeros_like,
)
from papers.draws import gaussian

TOGETHER = 10  # Hessian products in one pass over the data


def samples(
    objective: fg.Objective, wanted: dict[str, Any], count: int
) -> Iterator[Params]:
    """So many independent estimates of diag(H).

    Args:
        objective: model, data, loss and the point.
        wanted: "seed", and "kind": "products" are (60), "differences" are (61) with the
            "radius" named, "scaled products" have probes scaled by |W|, "gauss-newton"
            are squared gradients of random output vectors.
        count: how many.
    """
    random, kind = generator(wanted["seed"]), wanted["kind"]
    if kind == "differences":
        radii = _radii(objective.parameters, wanted["radius"], wanted["size"])
        return _differences(objective, radii, random, count)
    if kind == "gauss-newton":
        return _gauss_newton(objective, random, count)
    scaled = {"products": torch.ones_like, "scaled products": torch.abs}[kind]
    return _products(
        objective, map_tensors(scaled, objective.parameters), random, count
    )


def _products(
    objective: fg.Objective, d: Params, random: torch.Generator, count: int
) -> Iterator[Params]:
    """ε ∘ H(d ∘ ε) / d with Gaussian ε; d = 1 is (60) without its finite difference."""
    hessian = fg.Hessian(objective)
    inverse = map_tensors(torch.reciprocal, d)
    for start in range(0, count, TOGETHER):
        together = min(TOGETHER, count - start)
        some = [gaussian(objective.parameters, random) for _ in range(together)]
        images = hessian @ [multiply(probe, d) for probe in some]
        for probe, image in zip(some, images, strict=True):
            yield multiply(multiply(probe, image), inverse)


def _differences(
    objective: fg.Objective,
    radii: dict[str, float],
    random: torch.Generator,
    count: int,
) -> Iterator[Params]:
    """ε ∘ [∇L(θ + rε) − ∇L(θ − rε)] / 2r, all tensors moved at once, as printed: (61)."""
    space = objective.parameters
    for _ in range(count):
        probe = gaussian(space, random)
        move = {name: radii[name] * one for name, one in probe.items()}
        above = objective.at(add(space, move)).gradient()
        below = objective.at(add(space, move, -1.0)).gradient()
        yield {
            name: one * (above[name] - below[name]) / (2 * radii[name])
            for name, one in probe.items()
        }


def _radii(space: Params, rule: str, size: float) -> dict[str, float]:
    """The radius r of every tensor.

    "rms": in proportion to the tensor's root mean square, ‖W‖/√n; "frobenius": to ‖W‖
    itself; "equal": the same for all.
    """

    def radius(tensor: Tensor) -> float:
        norm = float(tensor.norm())
        return {
            "rms": size * norm / math.sqrt(tensor.numel()),
            "frobenius": size * norm,
            "equal": size,
        }[rule]

    return {name: radius(tensor) for name, tensor in space.items()}


def _gauss_newton(
    objective: fg.Objective, random: torch.Generator, count: int
) -> Iterator[Params]:
    """(∇_θ Σ⟨f, S u⟩)²/N with S Sᵀ = ∇²_f ℓ and random signs u: never negative for CE.

    Where ∇²_f ℓ is indefinite, its negative part has a probe of its own.
    """
    loss = objective.loss
    assert isinstance(loss, RowLoss)
    for _ in range(count):
        total = zeros_like(objective.parameters)
        with objective.isolated():
            for batch in objective.batches():
                point = objective.leaves()
                rows = loss.rows(*objective.evaluate(point, batch))
                plus, minus = next(loss.hessian_probes(rows, random))
                total = add(total, _squared(rows.outputs, point, plus))
                if minus is not None:
                    total = add(total, _squared(rows.outputs, point, minus), -1.0)
        yield scale(total, 1 / objective.sample_count)


def _squared(outputs: Tensor, point: Params, vectors: Tensor) -> Params:
    pulled = torch.autograd.grad(
        outputs, list(point.values()), vectors, retain_graph=True
    )
    return {name: one.square() for name, one in zip(point, pulled, strict=True)}
