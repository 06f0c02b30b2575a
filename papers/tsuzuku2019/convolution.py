"""Section 5.3 for convolutions: one scale for each input and each output channel."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from scipy.optimize import minimize
from torch import Tensor

import flatgauge as fg
from flatgauge.solvers.balancing import balance
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_nodes
from flatgauge.vectors import generator
from papers.experiment import Context
from papers.tsuzuku2019.network import data_of, facts, trained

LOSSES = ("cross-entropy", "normalized-cross-entropy")


def convolution(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """(17) of a convolutional network by several rules, at two points of one function."""
    model = trained(context, settings["network"])
    data = data_of(context, settings["network"])
    base = fg.Objective(model, data)
    chain, random = Chain.of(model), generator(settings["seed"])
    scales = [
        torch.randn(
            base.parameters[layer.weight].shape[0],
            generator=random,
            dtype=torch.float64,
        )
        .mul(settings["spread"])
        .exp()
        for layer in chain.layers[:-1]
    ]
    moved = rescale_nodes(base.parameters, chain, scales)
    losses = {}
    for loss in LOSSES:
        at = base.with_loss(loss)
        losses[loss] = {
            "trained": _measured(at, loss),
            "rescaled": _measured(at.at(moved), loss),
        }
    return {
        "network": facts(base, *data),
        "shapes": {n: list(w.shape) for n, w in base.parameters.items() if w.ndim > 1},
        "losses": losses,
    }


def _measured(objective: fg.Objective, loss: str) -> dict[str, Any]:
    """Every layer by every rule, and the library's own sum."""
    name = "normalized-sharpness"
    report = fg.measure(
        objective, name, options={name: {"surrogate": "objective"}}, strict=True
    )
    h = fg.hessian_diagonal(objective, "exact").values
    weights = {n: w for n, w in objective.parameters.items() if w.ndim > 1}
    return {
        "library": report[name].value,
        "trace": sum(float(one.sum()) for one in h.values()),
        "layers": {n: _rules(h[n], w) for n, w in weights.items()},
    }


def _rules(h: Tensor, weight: Tensor) -> dict[str, float]:
    """One layer by every rule; for a linear layer they are all the same.

    With kernel positions k the rule of the paper has scales σ_o σ'_i, so that
    α_oi = Σ_k h_oik and β_oi = Σ_k W_oik²; a finer one has σ_o σ'_ik.
    """
    clipped, square = h.clamp_min(0), weight.square()
    rows, columns = weight.shape[:2]
    alpha, beta = _over_kernel(clipped), _over_kernel(square)
    fine = balance(clipped.flatten(1), square.flatten(1))
    return {
        "channels": balance(alpha, beta).value,
        "minimized": _minimized(clipped, square),
        "positions": fine.value,
        "clipped_after": balance(_over_kernel(h).clamp_min(0), beta).value,
        "elementwise": 2 * float((weight.abs() * clipped.sqrt()).sum()),
        "matrix": 2 * float(weight.norm() * clipped.sum().sqrt()),
        "scales": rows + columns,
        "scales_positions": rows + square[0].numel(),
        "negative": int((h < 0).sum()),
    }


def _over_kernel(tensor: Tensor) -> Tensor:
    return tensor.flatten(2).sum(2) if tensor.ndim > 2 else tensor


def _minimized(h: Tensor, square: Tensor) -> float:
    """The rule of the paper entry by entry, kernel positions written out, by L-BFGS."""
    rows, columns = h.shape[:2]
    h, square = h.reshape(rows, columns, -1), square.reshape(rows, columns, -1)

    def total(z: np.ndarray) -> tuple[float, np.ndarray]:
        point = torch.from_numpy(z).requires_grad_()
        s = (point[:rows, None] + point[rows:]).exp()[:, :, None]
        value = (h * s + square / s).sum()
        (slope,) = torch.autograd.grad(value, point)
        return float(value.detach()), slope.numpy()

    # Near the scale at which both terms are equal, from which L-BFGS has not far to go.
    common = float((square.sum() / h.sum()).log()) / 4
    start = np.full(rows + columns, common)
    options = {"maxiter": 20000, "maxfun": 40000, "ftol": 1e-15, "gtol": 1e-10}
    return float(
        minimize(total, start, jac=True, method="L-BFGS-B", options=options).fun
    )


def total(measured: dict[str, Any], rule: str) -> float:
    """The sum of all layers by one rule."""
    return sum(one[rule] for one in measured["layers"].values())


def convolutional(result: dict[str, Any]) -> list[str]:
    """The names of the convolutions' weights."""
    return [name for name, shape in result["shapes"].items() if len(shape) > 2]
