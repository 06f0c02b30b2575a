"""The spectrum of an objective's Hessian: its density and its top eigenvalues."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import torch

from flatgauge.curvature.hessian import Hessian
from flatgauge.objective import Objective
from flatgauge.results import plain
from flatgauge.solvers import density as quadrature
from flatgauge.solvers.density import SpectralDensity
from flatgauge.solvers.lanczos import Eigenvalues, eigenvalues

GRID = 400
# The share of the range of the eigenvalues that is drawn beyond each end.
MARGIN = 0.05


def spectral_density(
    objective: Objective, probes: int = 10, steps: int = 80, seed: int = 0
) -> SpectralDensity:
    """The distribution of the Hessian's eigenvalues: see `solvers.density`.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> density = spectral_density(Objective(model, data, loss="mse"))
    >>> round(density.moment(1)[0], 12)
    5.0
    """
    return quadrature.spectral_density(Hessian(objective), probes, steps, seed)


def top_eigenvalues(
    objective: Objective,
    k: int = 5,
    tol: float = 1e-3,
    max_steps: int = 300,
    seed: int = 0,
) -> Eigenvalues:
    """The k largest eigenvalues of the Hessian, fewer if it has fewer.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> found = top_eigenvalues(Objective(model, data, loss="mse"), k=1)
    >>> round(found.values[0], 9)
    10.0
    """
    hessian = Hessian(objective)
    return eigenvalues(
        hessian, min(k, hessian.dimension), "largest", tol, max_steps, seed
    )


def spectrum_data(
    density: SpectralDensity, top: Eigenvalues | None = None
) -> dict[str, Any]:
    """Density and top eigenvalues as plain data, ready to be drawn.

    Args:
        density: smoothed here by a Gaussian of a hundredth of the range.
        top: the largest eigenvalues.

    Returns:
        The `grid`, the `density` on it (of integral 1) and its `standard_error` over
        the probes (0 where it is exact), and the `eigenvalues`, each with its bounds.
    """
    ends = [float(density.nodes.min()), float(density.nodes.max())]
    ends += [] if top is None else top.values
    reach = (max(ends) - min(ends)) or max(abs(max(ends)), 1.0)
    grid = torch.linspace(
        min(ends) - MARGIN * reach,
        max(ends) + MARGIN * reach,
        GRID,
        dtype=torch.float64,
    )
    singles = torch.stack(
        [
            replace(density, nodes=nodes[None], weights=weights[None]).evaluate(
                grid, reach / 100
            )
            for nodes, weights in zip(density.nodes, density.weights, strict=True)
        ]
    )
    count = len(singles)
    error = torch.zeros_like(grid)
    if count > 1:
        error = singles.std(dim=0) / math.sqrt(count)
    return {
        "grid": grid.tolist(),
        "density": singles.mean(dim=0).tolist(),
        "standard_error": error.tolist(),
        "status": density.status.name,
        "message": density.message,
        "dimension": density.dimension,
        "eigenvalues": {} if top is None else _eigenvalue_data(top),
    }


def _eigenvalue_data(top: Eigenvalues) -> dict[str, Any]:
    return {
        "values": plain(top.values),
        "residuals": plain(top.residuals),
        "error_bounds": plain(top.error_bounds),
        "status": top.status.name,
        "message": top.message,
    }
