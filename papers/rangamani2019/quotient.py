"""Section 2 and Appendix A as numbers: the classes of rescaled networks and their metric."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import Params, add, dot, gaussian, generator, ravel, unravel
from papers.experiment import Context, Run, Tolerance
from papers.rangamani2019.point import (
    alphas,
    at_random,
    biases_of,
    inner,
    log_ratio,
    relative,
)

NAME = "quotient"
STEP = 1e-5  # of the central differences of the action


def runs(quick: bool) -> list[Run]:
    """One run, for a network without and one with biases."""
    settings = {
        "widths": [3, 5, 4, 3],
        "samples": 30,
        "seed": 0,
        "draws": 3 if quick else 20,
        "spread": 0.7,
    }
    # Most of it is rounding, which is another number elsewhere.
    near = Tolerance(1e-6, 1e-7)
    rounding = {"without biases": near, "with biases": near}
    return [Run(NAME, settings, compute, on_cpu=True, tolerances=rounding)]


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Every proposition and lemma of section 2; the worst over some random draws."""
    return {
        ("with biases" if bias else "without biases"): _check(settings, bias)
        for bias in (False, True)
    }


def _check(settings: dict[str, Any], bias: bool) -> dict[str, Any]:
    here = at_random(settings, bias)
    chain, random = Chain.of(here.model()), generator(settings["seed"])
    spread = settings["spread"]
    found: list[dict[str, float]] = []
    for _ in range(settings["draws"]):
        left = alphas(len(chain), spread, random)
        right = alphas(len(chain), spread, random)
        found.append(
            {
                **_equivalence(here, chain, left, right),
                **_metric(here.parameters, chain, left, random),
                **_invariants(here.parameters, chain, left),
                **_graph(here.parameters, chain, left),
            }
        )
    worst = {key: max(one[key] for one in found) for key in found[0]}
    least = {
        f"least {key}": min(one[key] for one in found)
        for key in ("euclidean", "off graph")
    }
    return {
        **worst,
        **least,
        **_submersion(here.parameters, chain, alphas(len(chain), spread, random)),
        **_tangents(here, chain),
        **_straight_line(here, chain),
    }


def _equivalence(
    here: fg.Objective, chain: Chain, left: list[float], right: list[float]
) -> dict[str, float]:
    """Proposition 2.1: T_1, the inverse, the product; and the function."""
    point = here.parameters
    once = rescale_layers(point, chain, left)
    back = rescale_layers(once, chain, [1 / one for one in left])
    twice = rescale_layers(once, chain, right)
    both = [a * b for a, b in zip(left, right, strict=True)]
    return {
        "reflexive": relative(rescale_layers(point, chain, [1.0] * len(chain)), point),
        "symmetric": relative(back, point),
        "transitive": relative(twice, rescale_layers(point, chain, both)),
        "loss": abs(here.at(once).value() / here.value() - 1),
    }


def _metric(
    point: Params, chain: Chain, factors: list[float], random: torch.Generator
) -> dict[str, float]:
    """Propositions 2.3 and 2.5, for tangent vectors that move along with the point."""
    left, right = gaussian(point, random), gaussian(point, random)
    moved = [rescale_layers(one, chain, factors) for one in (point, left, right)]
    size = math.sqrt(inner(point, left, left) * inner(point, right, right))
    plain = float(dot(moved[1], moved[1]) / dot(left, left))
    return {
        "metric": abs(inner(*moved) - inner(point, left, right)) / size,
        "euclidean": abs(math.log(plain)),
    }


def _invariants(point: Params, chain: Chain, factors: list[float]) -> dict[str, float]:
    """Π ‖W_i‖², and Π ‖W~_i‖² with W~_i = [W_i; b_i/‖b_{i-1}‖]."""
    moved = rescale_layers(point, chain, factors)
    return {"invariant": abs(invariant(moved, chain) / invariant(point, chain) - 1)}


def invariant(point: Params, chain: Chain) -> float:
    """The product that all networks of one class share."""
    product, before = 1.0, 1.0
    for layer in chain.layers:
        square = float(point[layer.weight].square().sum())
        if layer.bias is not None:
            bias = float(point[layer.bias].square().sum())
            square, before = square + bias / before, bias
        product *= square
    return product


def _graph(point: Params, chain: Chain, factors: list[float]) -> dict[str, float]:
    """Propositions A.2 and A.3: F2 vanishes on the graph of ~ and nowhere else."""
    moved = rescale_layers(point, chain, factors)
    last = chain.layers[-1].weight
    row = torch.ones_like(moved[last])
    row[0] = 2.0
    off = [
        float(graph_function(point, {**moved, last: other}, chain).abs().max())
        for other in (2 * moved[last], row * moved[last])
    ]
    found = {
        "graph": float(graph_function(point, moved, chain).abs().max()),
        "off graph": min(off),
    }
    names = biases_of(chain)
    if names:
        weights = [log_ratio(point, moved, layer.weight) for layer in chain.layers]
        ratios = [log_ratio(point, moved, name) for name in names]
        # As printed, from the second bias on: log r(b_i) − log r(W_{i−1}), and for the
        # second one log r(b_1) in its place.
        printed = [b - w for b, w in zip(ratios[2:], weights[1:-1], strict=True)]
        found["printed rows"] = max(abs(float(one)) for one in printed)
    return found


def graph_function(left: Params, right: Params, chain: Chain) -> Tensor:
    """F2(left, right): what of `right` is orthogonal to `left`, then logarithms of ratios.

    With r the factor of a tensor: Σ log r(W_i), and for biases, with the misprints of the
    paper mended, log r(b_i) − log r(b_{i−1}) − log r(W_i).
    """
    rows = []
    for name, tensor in left.items():
        eye = torch.eye(tensor.numel(), dtype=tensor.dtype)
        basis = torch.linalg.qr(torch.cat([tensor.reshape(-1, 1), eye], 1))[0]
        rows.append(basis[:, 1:].T @ right[name].reshape(-1))
    weights = [log_ratio(left, right, layer.weight) for layer in chain.layers]
    logs = [torch.stack(weights).sum()]
    before = torch.zeros_like(logs[0])
    for layer, weight in zip(chain.layers, weights, strict=True):
        if layer.bias is not None:
            bias = log_ratio(left, right, layer.bias)
            logs.append(bias - before - weight)
            before = bias
    return torch.cat([*rows, torch.stack(logs)])


def _submersion(point: Params, chain: Chain, factors: list[float]) -> dict[str, int]:
    """The rank of F2's derivative in its second argument, and how many rows it has."""
    moved = rescale_layers(point, chain, factors)

    def rows(flat: Tensor) -> Tensor:
        return graph_function(point, unravel(flat, moved), chain)

    derivative = torch.autograd.functional.jacobian(rows, ravel(moved))
    assert isinstance(derivative, Tensor)
    return {
        "rows": derivative.shape[0],
        "rank": int(torch.linalg.matrix_rank(derivative)),
        "parameters": derivative.shape[1],
    }


def _tangents(here: fg.Objective, chain: Chain) -> dict[str, Any]:
    """Lemmas 2.4 and 2.6: the vertical space, against derivatives of the action."""
    point, count = here.parameters, len(chain)
    vectors, errors, slopes = [], [], []
    gradient = here.gradient()
    for first, second in pairwise(range(count)):
        beta = [0.0] * count
        beta[first], beta[second] = 1.0, -1.0
        there, back = (
            rescale_layers(point, chain, [math.exp(sign * STEP * b) for b in beta])
            for sign in (1, -1)
        )
        difference = (ravel(there) - ravel(back)) / (2 * STEP)
        vector = vertical(point, chain, beta)
        size = ravel(vector).norm()
        errors.append(float((difference - ravel(vector)).norm() / size))
        slope = float(dot(gradient, vector).abs())
        slopes.append(slope / float(ravel(gradient).norm() * size))
        vectors.append(ravel(vector))
    return {
        "vertical": max(errors),
        "vertical dimension": int(torch.linalg.matrix_rank(torch.stack(vectors))),
        "layers": count,
        "slope": max(slopes),
    }


def vertical(point: Params, chain: Chain, beta: list[float]) -> Params:
    """(β_i W_i, γ_i b_i) with γ_i = Σ_{j ≤ i} β_j."""
    vector, gamma = {}, 0.0
    for layer, value in zip(chain.layers, beta, strict=True):
        gamma += value
        vector[layer.weight] = value * point[layer.weight]
        if layer.bias is not None:
            vector[layer.bias] = gamma * point[layer.bias]
    return vector


def _straight_line(here: fg.Objective, chain: Chain) -> dict[str, float]:
    """How the loss changes along W + tV with V vertical, at two steps."""
    beta = [1.0, -1.0, *[0.0] * (len(chain) - 2)]
    direction = vertical(here.parameters, chain, beta)
    long, short = (
        abs(here.at(add(here.parameters, direction, step)).value() / here.value() - 1)
        for step in (1e-1, 1e-2)
    )
    return {"straight line": long, "straight line, order": math.log10(long / short)}
