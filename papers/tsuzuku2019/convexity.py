"""Appendix B, (46) to (58): is (17) convex in the logarithms of its scales?"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor

import flatgauge as fg
from flatgauge.vectors import generator
from papers.experiment import Context
from papers.tsuzuku2019.network import data_of, trained

# Eigenvalues below this share of the largest count as 0.
ZERO = 1e-11
FAR = 30.0
# A label, α and β.
Pair = tuple[str, Tensor, Tensor]


def convexity(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """The Hessian of S, equation (48), against (53)-(55) and (58), pair by pair.

    The pairs α = diag(H) and β = W² are those of a trained network, with the negative
    curvatures of the normalized loss clipped and left, and random ones with zeros.
    """
    random = generator(settings["seed"])
    pairs = [*_trained_pairs(context, settings), *_random_pairs(settings, random)]
    return {
        "pairs": [
            _check(label, alpha, beta, settings, random) for label, alpha, beta in pairs
        ]
    }


def _trained_pairs(context: Context, settings: dict[str, Any]) -> list[Pair]:
    model = trained(context, settings["network"])
    base = fg.Objective(model, data_of(context, settings["network"]))
    pairs: list[Pair] = []
    for loss in ("cross-entropy", "normalized-cross-entropy"):
        diagonal = fg.hessian_diagonal(base.with_loss(loss), "exact").values
        for name, weight in base.parameters.items():
            if weight.ndim != 2:
                continue
            h, square = diagonal[name].cpu(), weight.square().cpu()
            pairs.append((f"{name}, {loss}", h.clamp_min(0), square))
            if float(h.min()) < -1e-12 * float(h.abs().max()):
                pairs.append((f"{name}, {loss}, not clipped", h, square))
    return pairs


def _random_pairs(settings: dict[str, Any], random: torch.Generator) -> list[Pair]:
    """Log-normal entries, of which a share is 0 in both."""
    rows, columns = settings["shape"]
    found: list[Pair] = []
    for zeros in settings["zeros"]:
        alpha, beta = (
            torch.randn(rows, columns, generator=random, dtype=torch.float64).exp()
            for _ in range(2)
        )
        kept = torch.rand(rows, columns, generator=random) >= zeros
        found.append((f"random, {zeros:.0%} zeros", alpha * kept, beta * kept))
    return found


def _check(
    label: str,
    alpha: Tensor,
    beta: Tensor,
    settings: dict[str, Any],
    random: torch.Generator,
) -> dict[str, Any]:
    """The worst over some random points and directions."""
    rows, columns = alpha.shape
    # An overall factor of α or β only moves the point.
    alpha, beta = alpha / alpha.abs().max(), beta / beta.max()

    def draw() -> Tensor:
        return torch.randn(rows + columns, generator=random, dtype=torch.float64)

    found = [
        _at(alpha, beta, settings["spread"] * draw(), draw())
        for _ in range(settings["points"])
    ]
    return {
        "label": label,
        "shape": [rows, columns],
        "negative_curvatures": int((alpha < 0).sum()),
        "components": _components((alpha != 0) | (beta != 0)),
        "hessian_error": max(one["hessian_error"] for one in found),
        "form_error": max(one["form_error"] for one in found),
        "least": min(one["least"] for one in found),
        "nullity": found[0]["nullity"],
        "least_as_printed": min(one["least_as_printed"] for one in found),
        "least_in_sigma": min(one["least_in_sigma"] for one in found),
        "far": _far(alpha, beta),
    }


def _components(entries: Tensor) -> int:
    """How many parts the graph of rows and columns has that these entries connect."""
    below = torch.zeros(sum(entries.shape), sum(entries.shape), dtype=torch.int8)
    below[len(entries) :, : len(entries)] = entries.T
    return int(connected_components(csr_matrix(below.numpy()), directed=False)[0])


def _far(alpha: Tensor, beta: Tensor) -> float:
    """S over S(0), far out along the row and the column of the smallest curvature.

    Along x_i = y_j = t one entry grows as e^{2t} and its row and column as e^t, so that
    S falls without end where that entry is negative.
    """
    row, column = divmod(int(alpha.argmin()), alpha.shape[1])
    x, y = alpha.new_zeros(len(alpha)), alpha.new_zeros(alpha.shape[1])
    x[row] = y[column] = FAR
    s = (x[:, None] + y).exp()
    return float((alpha * s + beta / s).sum() / (alpha + beta).sum())


def _at(alpha: Tensor, beta: Tensor, z: Tensor, v: Tensor) -> dict[str, Any]:
    """Appendix B at one point z = (x, y), along one direction v."""
    rows = len(alpha)

    def objective(square: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
        """S as a function of what the variances are `square` of."""

        def total(z: Tensor) -> Tensor:
            s = square(z)[:rows, None] * square(z)[rows:]
            return (alpha * s + beta / s).sum()

        return total

    def printed(z: Tensor) -> Tensor:
        """(18) and (19) to the letter: e^x = σ², e^y = σ'."""
        return torch.cat([z[:rows].exp(), (2 * z[rows:]).exp()])

    hessian = _hessian(objective(torch.exp), z)
    gamma = alpha * (z[:rows, None] + z[rows:]).exp()
    gamma = gamma + beta * (-z[:rows, None] - z[rows:]).exp()
    formula = torch.cat(
        [
            torch.cat([gamma.sum(1).diag(), gamma], 1),
            torch.cat([gamma.T, gamma.sum(0).diag()], 1),
        ]
    )
    form = (gamma * (v[:rows, None] + v[rows:]).square()).sum()
    values = torch.linalg.eigvalsh(hessian)
    least, most = float(values[0]), float(values[-1])
    return {
        "hessian_error": float((hessian - formula).abs().max() / formula.abs().max()),
        "form_error": float((v @ hessian @ v - form).abs() / form.abs()),
        "least": least / most,
        "nullity": int((values.abs() < ZERO * most).sum()),
        "least_as_printed": _least(_hessian(objective(printed), z)),
        # The same point in terms of the standard deviations σ and σ' themselves.
        "least_in_sigma": _least(_hessian(objective(torch.square), (z / 2).exp())),
    }


def _hessian(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    found = torch.autograd.functional.hessian(function, z)
    assert isinstance(found, Tensor)
    return found


def _least(matrix: Tensor) -> float:
    """The smallest eigenvalue over the largest."""
    values = torch.linalg.eigvalsh(matrix)
    return float(values[0] / values[-1])
