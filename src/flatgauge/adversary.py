"""Dinh's adversary: the same function, as sharp as one likes, or as flat as can be."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor, nn

from flatgauge.curvature.hessian import Hessian
from flatgauge.diagonals.diagonal import hessian_diagonal
from flatgauge.errors import OptionError, SymmetryError
from flatgauge.objective import Objective
from flatgauge.output_changes import output_change
from flatgauge.solvers.lanczos import largest_eigenvalue
from flatgauge.symmetry import symmetries
from flatgauge.symmetry.generators import VerticalSpace
from flatgauge.vectors import Params, dot, map_tensors, multiply, scale
from flatgauge.vocabulary import RESCALINGS, Kind

# Generators whose curvature is looked at, best first: at a time, and in all.
CANDIDATES, MOST_CANDIDATES = 16, 256
NOTHING = (0.0, 0.0, torch.zeros(0))
# What the bound asks for beyond the factor, against the error of the spectral norms.
MARGIN = 1.05


@dataclass(frozen=True)
class Sharpened:
    """A twin with the same outputs and a larger Hessian.

    `ratio` is `after / before`, the spectral norms of the Hessian as measured.
    """

    objective: Objective
    before: float
    after: float
    ratio: float
    output_change: float


def sharpen(objective: Objective, factor: float = 1e4, *, seed: int = 0) -> nn.Module:
    """The same function with its Hessian's spectral norm times at least `factor`.

    A rescaling T of the parameters that keeps the function takes the Hessian H to
    T⁻¹ H T⁻¹, so curvature grows without bound where parameters shrink (Dinh et al.
    2017, Theorem 2). T is chosen from the network's own symmetries.

    Args:
        objective: model, data, loss and the point.
        factor: how much sharper the twin is to be.
        seed: for the eigenvector computation.

    Returns:
        A new model; yours is not changed.

    Raises:
        SymmetryError: if the network has no rescaling to use.
    """
    return sharpened(objective, factor, seed=seed).objective.model()


def sharpened(objective: Objective, factor: float, *, seed: int = 0) -> Sharpened:
    """`sharpen`, with the measured spectral norms."""
    if not factor >= 1:
        raise OptionError(f"factor= is {factor}: give a number of at least 1.")
    objective = objective.whole()
    hessian = Hessian(objective)
    top = largest_eigenvalue(hessian, tol=1e-3, seed=seed)
    if top.value <= 0:
        raise SymmetryError(
            f"the largest eigenvalue of the Hessian is {top.value:.3g}, so there is no "
            "curvature to raise: sharpen a trained network."
        )
    orbit, direction, curvature, rate = _steepest(objective, hessian, top.vector)
    goal = MARGIN * factor * (top.value + top.error_bound)
    time = math.log(goal / curvature) / (2 * rate)
    twin = objective.at(orbit.flow(time * direction))
    after = largest_eigenvalue(Hessian(twin), tol=1e-3, seed=seed, bounded=False).value
    change = output_change(objective, twin)
    return Sharpened(twin, top.value, after, after / top.value, change)


def _steepest(
    objective: Objective, hessian: Hessian, top: Params
) -> tuple[VerticalSpace, Tensor, float, float]:
    """The generator that shrinks the parameters where the curvature is largest.

    Returns the orbit's directions, coordinates along them, and a curvature xᵀHx with
    x a unit vector on entries that all shrink at the returned rate: the Hessian's
    spectral norm is at least that curvature times exp(2 rate t) at time t.
    """
    group = symmetries(objective, batchnorm="parameters")
    for kind in RESCALINGS:
        orbit = group.vertical(objective.parameters, kind)
        if len(orbit) == 0:
            continue
        ones = map_tensors(torch.ones_like, objective.parameters)
        scores = orbit.at(multiply(top, top)).inner(ones)
        order = scores.abs().argsort(descending=True)[:MOST_CANDIDATES]
        for some in order.split(CANDIDATES):
            found = _curved(hessian, top, orbit.at(ones), scores, some.tolist())
            curvature, rate, direction = max(found, default=NOTHING, key=lambda f: f[0])
            if curvature > 0:
                return orbit, direction, curvature, rate
    raise SymmetryError(
        "this network has no rescaling that keeps its function and reaches a curved "
        "direction, so it cannot be sharpened: see symmetries(model, inputs).pinned."
    )


def _curved(
    hessian: Hessian,
    top: Params,
    exponents: VerticalSpace,
    scores: Tensor,
    chosen: list[int],
) -> list[tuple[float, float, Tensor]]:
    """For some generators: the curvature where they shrink, the rate, the direction."""
    parts = []
    for index in chosen:
        direction = torch.zeros(len(exponents), dtype=torch.float64)
        direction[index] = -1.0 if scores[index] > 0 else 1.0
        speeds = exponents.combine(direction)
        rate = -min(float(speed.min()) for speed in speeds.values())
        shrinking = {n: (s <= -rate * (1 - 1e-9)).to(s) for n, s in speeds.items()}
        part = multiply(top, shrinking)
        length = float(dot(part, part).sqrt())
        if length > 0 and rate > 0:
            parts.append((direction, rate, scale(part, 1 / length)))
    images = hessian @ [part for _, _, part in parts]
    return [
        (float(dot(part, image)), rate, direction)
        for (direction, rate, part), image in zip(parts, images, strict=True)
    ]


def flattest(objective: Objective, kind: str = Kind.NODE_RESCALE) -> nn.Module:
    """The same function with the smallest trace of the Hessian on its orbit.

    Minimizes Σ_i h_i exp(−2 e_i) over the log-scales e of the network's symmetries,
    a convex function. "Flat" in this sense was a choice of the parametrization.

    Args:
        objective: model, data, loss and the point.
        kind: "layer-rescale" (whole tensors) or "node-rescale".
    """
    if kind not in RESCALINGS:
        raise OptionError(f"kind= is '{kind}': use 'layer-rescale' or 'node-rescale'.")
    objective = objective.whole()
    diagonal = hessian_diagonal(objective)
    if not diagonal.exact:
        raise OptionError(
            "the flattest twin needs the exact diagonal of the Hessian, which this network "
            "is too large for: choose fewer parameters with params=."
        )
    curvature = {name: h.double() for name, h in diagonal.values.items()}
    if any(float(h.min()) < 0 for h in curvature.values()):
        raise SymmetryError(
            "the Hessian has negative diagonal entries here, which shrinking parameters "
            "makes as large as one likes: its trace has no smallest value on the orbit."
        )
    group = symmetries(objective, batchnorm="parameters")
    orbit = group.vertical(objective.parameters, kind)
    if len(orbit) == 0:
        raise SymmetryError("this network has no rescaling that keeps its function.")
    ones = map_tensors(torch.ones_like, curvature)

    def trace(coordinates: np.ndarray) -> tuple[float, np.ndarray]:
        steps = torch.from_numpy(coordinates)
        moved = orbit.at(curvature).flow(-2 * steps)
        total = sum(float(h.sum()) for h in moved.values())
        slope = -2 * orbit.at(moved).inner(ones)
        return total, slope.numpy()

    found = minimize(trace, np.zeros(len(orbit)), jac=True, method="L-BFGS-B")
    return objective.at(orbit.flow(torch.from_numpy(found.x))).model()
