"""Figure 1: how fast the power method converges on F1, and how fast Lanczos does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from flatgauge.curvature.hessian import Hessian
from flatgauge.geometry.metric import LayerMetric
from flatgauge.solvers.lanczos import largest_eigenvalue
from flatgauge.solvers.power import power_method
from papers.experiment import Context, Results, Run, Tolerance
from papers.figures import new_figure, save
from papers.rangamani2019 import networks
from papers.rangamani2019.synthetic import objective

NAME = "figure1"
LEVELS = (1e-3, 1e-6, 1e-9)


def runs(quick: bool) -> list[Run]:
    """One run: both methods from the same start vector."""
    settings = {
        "network": networks.F1,
        "samples": 40 if quick else 500,
        "seed": 0,
        "power_steps": 40 if quick else 200,
        "tol": 1e-13,
    }
    return [
        Run(
            NAME,
            settings,
            compute,
            on_cpu=True,
            revision=2,
            # Where an estimate comes to within a level may move by a step with rounding,
            # and so may the last step, at which the smallest has not converged.
            tolerances={
                "smallest": Tolerance(relative=0.01),
                "products": Tolerance(absolute=1.0),
                "estimates": None,
                "changes": None,
            },
        )
    ]


def compute(context: Context, settings: dict[str, Any]) -> dict[str, Any]:
    """The estimate of the largest eigenvalue after each product, by both methods.

    The largest eigenvalue itself is that of Lanczos, run until its residual is rounding.
    """
    here = objective(settings, torch.float64)
    operator = LayerMetric().whiten(Hessian(here), here.parameters)
    found = largest_eigenvalue(operator, settings["tol"], seed=settings["seed"])
    ritz = ritz_values(found.alphas, found.betas)
    power = power_method(
        operator,
        settings["tol"],
        settings["power_steps"],
        seed=settings["seed"],
        shift=False,
    )
    methods = {"power": power.quotients, "lanczos": ritz}
    return {
        "largest": found.value,
        "smallest": found.smallest,
        "residual": found.residual,
        "changes": power.changes,
        "estimates": methods,
        "products": {
            name: [products_to(values, found.value, level) for level in LEVELS]
            for name, values in methods.items()
        },
    }


def ritz_values(alphas: list[float], betas: list[float]) -> list[float]:
    """The largest eigenvalue of each leading part of the tridiagonal matrix.

    >>> ritz_values([1.0, 1.0], [2.0, 0.0])
    [1.0, 3.0]
    """
    off = betas[: len(alphas) - 1]
    whole = np.diag(alphas) + np.diag(off, 1) + np.diag(off, -1)
    return [
        float(np.linalg.eigvalsh(whole[:k, :k])[-1]) for k in range(1, len(alphas) + 1)
    ]


def products_to(values: list[float], largest: float, level: float) -> int | None:
    """After how many products the relative error stays at most `level`.

    >>> products_to([2.0, 4.1, 3.0, 4.0, 4.0], 4.0, 1e-3)
    4
    """
    wrong = [k for k, v in enumerate(values, 1) if abs(v - largest) > level * largest]
    last = max(wrong, default=0)
    return last + 1 if last < len(values) else None


def draw(results: Results, folder: Path) -> None:
    """The estimates, and their relative errors, against the number of products."""
    if NAME not in results:
        return
    found = results[NAME]
    figure, (left, right) = new_figure(2)
    labels = {"power": "power method (Algorithm 1)", "lanczos": "Lanczos"}
    for name, label in labels.items():
        values = np.array(found["estimates"][name])
        products = np.arange(1, len(values) + 1)
        error = np.abs(values - found["largest"]) / found["largest"]
        left.plot(products, values, marker=".", label=label)
        right.semilogy(products, np.maximum(error, 1e-16), marker=".", label=label)
    left.set_xlim(0, len(found["estimates"]["lanczos"]))
    left.set_ylabel("estimate of the largest eigenvalue")
    right.set_ylabel("relative error")
    for panel in (left, right):
        panel.set_xlabel("products with the Riemannian Hessian")
        panel.legend()
    save(figure, folder / "figure1.svg")
