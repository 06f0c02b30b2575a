"""The spectrum of an objective's Hessian: its density and its top eigenvalues."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from flatgauge.curvature.hessian import Hessian
from flatgauge.objective import Objective
from flatgauge.results import plain
from flatgauge.solvers.density import SpectralDensity
from flatgauge.solvers.density import spectral_density as solve_density
from flatgauge.solvers.lanczos import Eigenvalues, eigenvalues
from flatgauge.solvers.spectrum import Spectrum, solve_spectrum
from flatgauge.solvers.student import standard_error

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
    hessian = Hessian(objective.whole(), expect=probes * steps)
    return solve_density(hessian, probes, steps, seed)


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


def measure_spectrum(
    objective: Objective,
    k: int = 5,
    probes: int = 10,
    steps: int = 80,
    tol: float = 1e-3,
    max_steps: int = 300,
    seed: int = 0,
) -> Spectrum:
    """`spectral_density` and `top_eigenvalues` for the products of the first.

    One set of Lanczos runs serves both, and gives the smallest eigenvalue too: see
    `solvers.spectrum`.

    >>> import torch
    >>> model = torch.nn.Linear(2, 1, bias=False).double()
    >>> data = (torch.tensor([[1.0, 2.0]]), torch.zeros(1, 1))
    >>> found = measure_spectrum(Objective(model, data, loss="mse"), k=1)
    >>> round(found.largest.values[0], 9), found.products
    (10.0, 2)
    """
    hessian = Hessian(objective.whole(), expect=probes * steps)
    return solve_spectrum(
        hessian, min(k, hessian.dimension), probes, steps, tol, max_steps, seed
    )


def spectrum_data(
    density: SpectralDensity,
    top: Eigenvalues | None = None,
    bottom: Eigenvalues | None = None,
) -> dict[str, Any]:
    """Density and extreme eigenvalues as plain data, ready to be drawn.

    Args:
        density: smoothed here by a Gaussian of a hundredth of the range.
        top: the largest eigenvalues.
        bottom: the smallest ones.

    Returns:
        The `grid`, the `density` on it (of integral 1) and its `standard_error` over
        the probes (0 where it is exact), the `eigenvalues` (the largest) and the
        `smallest`, each with its bounds.
    """
    ends = [float(density.nodes.min()), float(density.nodes.max())]
    ends += [value for found in (top, bottom) if found for value in found.values]
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
    error = torch.zeros_like(grid)
    if len(singles) > 1:
        error = torch.from_numpy(standard_error(singles.numpy()))
    return {
        "grid": grid.tolist(),
        "density": singles.mean(dim=0).tolist(),
        "standard_error": error.tolist(),
        "status": density.status.name,
        "message": density.message,
        "dimension": density.dimension,
        "eigenvalues": {} if top is None else _eigenvalue_data(top),
        "smallest": {} if bottom is None else _eigenvalue_data(bottom),
    }


def _eigenvalue_data(found: Eigenvalues) -> dict[str, Any]:
    return {
        "values": plain(found.values),
        "residuals": plain(found.residuals),
        "error_bounds": plain(found.error_bounds),
        "status": found.status.name,
        "message": found.message,
    }
