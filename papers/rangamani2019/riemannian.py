"""Definitions 1 to 3, Theorem 1.1, the remarks and section 6 as numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.curvature.hessian import Hessian
from flatgauge.geometry.metric import LayerMetric
from flatgauge.solvers.power import power_method
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers, rescale_nodes
from flatgauge.vectors import Params, gaussian, generator, ravel, unravel
from papers.experiment import Context, Run, Tolerance
from papers.rangamani2019.point import alphas, at_random, relative
from papers.rangamani2019.quotient import vertical

NAME = "definitions"
FAR = 1000.0
SHARPNESS = {"epsilon": "epsilon-sharpness", "manifold": "riemannian-sharpness"}


def runs(quick: bool) -> list[Run]:
    """One run, at a minimum and away from one."""
    settings = {
        "widths": [3, 5, 4, 3],
        "samples": 30,
        "seed": 0,
        "spread": 0.7,
        "radii": [0.1, 0.01] if quick else [0.3, 0.1, 0.03, 0.01],
        "alphas": [0.01, 0.1, 0.5, 1.0, 2.0, 10.0, 100.0],
        "seeds": 50,
        "power_steps": 100 if quick else 300,
    }
    rounding = Tolerance(relative=1e-3, absolute=1e-7)
    return [Run(NAME, settings, compute, on_cpu=True, tolerances={"remarks": rounding})]


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """Each statement at a network of zero loss, and with random targets where it matters."""
    minimum = at_random(settings, bias=True, minimum=True)
    away = at_random(settings, bias=True)
    return {
        "sharpness": _sharpness(minimum, settings),
        "theorem": _theorem(settings),
        "remarks": {
            "minimum": _remarks(minimum, settings),
            "away": _remarks(away, settings),
        },
        "spectral": _spectral(settings),
        "nodes": _nodes(away, settings),
    }


def _sharpness(here: fg.Objective, settings: dict[str, Any]) -> list[dict[str, Any]]:
    """Definition 1 and its form on the manifold, over λ ε² / 2(1 + L)."""
    largest = {
        "epsilon": float(torch.linalg.eigvalsh(dense_hessian(here))[-1]),
        "manifold": float(torch.linalg.eigvalsh(whitened(here))[-1]),
    }
    rows = []
    for radius in settings["radii"]:
        row: dict[str, Any] = {"radius": radius}
        for key, name in SHARPNESS.items():
            report = fg.measure(here, name, options={name: {"epsilon": radius}})
            order = largest[key] * radius**2 / (2 * (1 + here.value()))
            row[key] = report[name].value
            row[f"{key}, second order"] = order
        rows.append(row)
    return rows


def _theorem(settings: dict[str, Any]) -> list[dict[str, float]]:
    """Theorem 1.1 at a minimum: λmax at T_α, its lower bound γ/α², and one for all α.

    With λ_k the largest eigenvalue of the block of layer k, λmax(T_α) is at least
    λ_1/α² and λ_2 α², so never less than √(λ_1 λ_2).
    """
    widths = [settings["widths"][0], settings["widths"][1], settings["widths"][-1]]
    here = at_random({**settings, "widths": widths}, bias=False, minimum=True)
    chain = Chain.of(here.model())
    first = here.parameters[chain.layers[0].weight].numel()
    matrix = dense_hessian(here)
    entry = float(matrix.diagonal()[:first].max())
    blocks = (matrix[:first, :first], matrix[first:, first:])
    largest_of = [float(torch.linalg.eigvalsh(one)[-1]) for one in blocks]
    floor = math.sqrt(math.prod(largest_of))
    rows = []
    for alpha in settings["alphas"]:
        moved = here.at(rescale_layers(here.parameters, chain, (alpha, 1 / alpha)))
        largest = float(torch.linalg.eigvalsh(dense_hessian(moved))[-1])
        bound = entry / alpha**2
        rows.append(
            {"alpha": alpha, "largest": largest, "bound": bound, "floor": floor}
        )
    return rows


def _remarks(here: fg.Objective, settings: dict[str, Any]) -> dict[str, float]:
    """Definition 2 to the letter, the projection, and the Levi-Civita connection."""
    chain, random = Chain.of(here.model()), generator(settings["seed"])
    point, tangent = here.parameters, gaussian(here.parameters, random)
    product = unravel(dense_hessian(here) @ ravel(tangent), point)
    expected = _raised(point, product)
    beta = [1.0, -1.0, *[0.0] * (len(chain) - 2)]
    along = vertical(point, chain, beta)
    image = dense_hessian(here) @ ravel(along)
    flat, proper = whitened(here), whitened(here) + connection(here)
    moved = here.at(
        rescale_layers(point, chain, alphas(len(chain), settings["spread"], random))
    )
    there = whitened(moved)
    return {
        "gradient": float(ravel(here.gradient()).norm()),
        "definition": relative(literal_hessian(here, tangent, frozen=False), expected),
        "frozen": relative(literal_hessian(here, tangent, frozen=True), expected),
        "vertical image": float(image.norm() / (flat.norm() * ravel(along).norm())),
        "largest": float(torch.linalg.eigvalsh(flat)[-1]),
        "largest, projected": float(torch.linalg.eigvalsh(_projected(here, flat))[-1]),
        "largest, Levi-Civita": float(torch.linalg.eigvalsh(proper)[-1]),
        "drift": _drift(flat, there),
        "drift, Levi-Civita": _drift(proper, there + connection(moved)),
    }


def _drift(here: Tensor, there: Tensor) -> float:
    before, after = (float(torch.linalg.eigvalsh(one)[-1]) for one in (here, there))
    return abs(after / before - 1)


def literal_hessian(here: fg.Objective, tangent: Params, frozen: bool) -> Params:
    """grad g(grad f, ξ) by differentiation, ξ constant: Remark 1.

    g at W is Σ ⟨·,·⟩ / ‖W_i‖² and grad f = ‖W_i‖² ∇_i f, so that the norms cancel. Where
    the outer metric is `frozen` at W while the inner gradient moves, they do not.
    """
    leaves = {
        n: w.detach().clone().requires_grad_() for n, w in here.parameters.items()
    }
    batch = next(iter(here.batches()))
    loss = here.batch_total(leaves, batch) / here.sample_count
    slopes = torch.autograd.grad(loss, list(leaves.values()), create_graph=True)
    total = loss.new_zeros(())
    for (name, leaf), slope in zip(leaves.items(), slopes, strict=True):
        square = leaf.square().sum()
        outer = square.detach() if frozen else square
        total = total + (square * slope * tangent[name]).sum() / outer
    found = torch.autograd.grad(total, list(leaves.values()))
    return _raised(here.parameters, dict(zip(leaves, found, strict=True)))


def _raised(point: Params, gradient: Params) -> Params:
    """G⁻¹ of a Euclidean gradient."""
    return {name: point[name].square().sum() * one for name, one in gradient.items()}


def whitened(here: fg.Objective) -> Tensor:
    """S ∇²L S with S = G^(−1/2): the norm of its tensor for every entry."""
    scale = _scale(here.parameters)
    return scale[:, None] * dense_hessian(here) * scale


def connection(here: fg.Objective) -> Tensor:
    """What the Levi-Civita connection adds to S ∇²L S: W∇ᵀ + ∇Wᵀ − ⟨W, ∇⟩ I, by tensor."""
    blocks = []
    gradient = here.gradient()
    for name, weight in here.parameters.items():
        w, g = weight.reshape(-1), gradient[name].reshape(-1)
        eye = torch.eye(len(w), dtype=w.dtype)
        blocks.append(torch.outer(w, g) + torch.outer(g, w) - (w @ g) * eye)
    return torch.block_diag(*blocks)


def _projected(here: fg.Objective, matrix: Tensor) -> Tensor:
    """The matrix on the orthogonal complement of the vertical space, in whitened terms."""
    chain, point = Chain.of(here.model()), here.parameters
    columns = []
    for index in range(len(chain) - 1):
        beta = [0.0] * len(chain)
        beta[index], beta[index + 1] = 1.0, -1.0
        columns.append(ravel(vertical(point, chain, beta)) / _scale(point))
    basis = torch.linalg.qr(torch.stack(columns, 1))[0]
    kept = torch.eye(len(matrix), dtype=matrix.dtype) - basis @ basis.T
    return kept @ matrix @ kept


def _scale(point: Params) -> Tensor:
    return ravel({n: torch.full_like(w, float(w.norm())) for n, w in point.items()})


def _spectral(settings: dict[str, Any]) -> dict[str, Any]:
    """Definition 3 and Algorithm 1 where a negative eigenvalue is the largest in magnitude.

    The first of some random networks for which that is so, if any, with targets that are
    far from its outputs, so that the second derivatives of the network itself matter.
    """
    for seed in range(settings["seeds"]):
        here = at_random(
            {**settings, "seed": seed, "samples": 10}, bias=True, targets_scale=FAR
        )
        values = torch.linalg.eigvalsh(whitened(here))
        if -float(values[0]) > 1.1 * float(values[-1]):
            break
    else:
        return {"found": False}
    operator = LayerMetric().whiten(Hessian(here), here.parameters)
    steps = settings["power_steps"]
    power = power_method(operator, 1e-6, steps, seed=0, shift=False)
    name = "riemannian-spectral-norm"
    report = fg.measure(here, name, options={name: {"tol": 1e-9}}, strict=True)
    return {
        "found": True,
        "seed": seed,
        "largest": float(values[-1]),
        "smallest": float(values[0]),
        "algorithm": power.quotients[-1],
        "change": power.changes[-1],
        "steps": len(power.quotients),
        "library": report[name].value,
    }


def _nodes(here: fg.Objective, settings: dict[str, Any]) -> dict[str, float]:
    """Section 6: the node-wise metric, and the printed T_Λ."""
    chain, random = Chain.of(here.model()), generator(settings["seed"])
    point = here.parameters
    scales = [
        (
            settings["spread"]
            * torch.randn(width, generator=random, dtype=torch.float64)
        ).exp()
        for width in settings["widths"][1:-1]
    ]
    moved = here.at(rescale_nodes(point, chain, scales))
    node, layer = (
        abs(_largest(moved, kind) / _largest(here, kind) - 1)
        for kind in ("node", "layer")
    )
    last = chain.layers[-1].weight
    inverse = 1 / scales[-1]
    # Λ4 W3 exists only for as many outputs as hidden units: the first entries of Λ4.
    printed = {
        **moved.parameters,
        last: inverse[: len(point[last]), None] * point[last],
    }
    return {
        "loss": abs(moved.value() / here.value() - 1),
        "loss, printed": abs(here.at(printed).value() / here.value() - 1),
        "node": node,
        "layer": layer,
    }


def _largest(here: fg.Objective, metric: str) -> float:
    if metric == "layer":
        return float(torch.linalg.eigvalsh(whitened(here))[-1])
    size = ravel(here.parameters).abs()
    return float(torch.linalg.eigvalsh(size[:, None] * dense_hessian(here) * size)[-1])
