"""Draw the theorems of Dinh and Rangamani: python docs/generate_theorems.py

Each curve is checked against the theorem before it is drawn.
"""

from __future__ import annotations

from pathlib import Path

import matplotlib as mpl
import torch
from networks import mlp, normal, seeded
from torch import Tensor

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers
from flatgauge.vectors import norm, ravel

mpl.use("svg")
mpl.rcParams["svg.hashsalt"] = "flatgauge"

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

PICTURE = Path(__file__).parent / "theorems.svg"
ALPHAS = torch.logspace(-3, 0, 13, dtype=torch.float64).tolist()


def at_zero_loss(*widths: int) -> fg.Objective:
    """A bias-free network on its own outputs: a minimum."""
    model = seeded(lambda: mlp(*widths, bias=False), seed=3)
    inputs = 3 * normal(60, widths[0], seed=1)
    with torch.no_grad():
        targets = model(inputs)
    return fg.Objective(model, (inputs, targets), loss="mse")


def theorem_1(axes: Axes) -> None:
    """The gradient norm of (αW₁, W₂/α) grows as ‖g₁‖/α."""
    model = seeded(lambda: mlp(2, 4, 3, bias=False))
    data = (normal(40, 2, seed=1), normal(40, 3, seed=2))
    objective = fg.Objective(model, data, loss="mse")
    chain, first = Chain.of(model), float(objective.gradient()["0.weight"].norm())
    norms = []
    for alpha in ALPHAS:
        moved = rescale_layers(objective.parameters, chain, (alpha, 1 / alpha))
        norms.append(float(norm(objective.at(moved).gradient())))
    assert abs(norms[0] * ALPHAS[0] / first - 1) < 1e-4, norms
    axes.loglog(ALPHAS, norms, "o-", label="‖∇L‖")
    axes.loglog(ALPHAS, [first / a for a in ALPHAS], "--", label="‖g₁‖ / α")
    axes.set_title("Theorem 1: the gradient")


def spectral_norms(axes: Axes) -> None:
    """λmax(H) exceeds γ/α² for a diagonal entry γ; λmax(S H S) does not move."""
    objective = at_zero_loss(2, 4, 3)
    chain = Chain.of(objective.model())
    entry = float(dense_hessian(objective).diagonal()[:8].max())
    plain, layer = "hessian-spectral-norm[tol=1e-10]", "riemannian-spectral-norm"
    node = f"{layer}[metric=node,tol=1e-10]"
    curves: dict[str, list[float]] = {plain: [], f"{layer}[tol=1e-10]": [], node: []}
    for alpha in ALPHAS:
        scaled = rescale_layers(objective.parameters, chain, (alpha, 1 / alpha))
        moved = objective.at(scaled)
        for name, found in fg.measure(moved, *curves, strict=True).measurements.items():
            assert found.value is not None
            curves[name].append(found.value)
    for value, alpha in zip(curves[plain], ALPHAS, strict=True):
        assert value >= entry / alpha**2
    titles = ("λmax(H)", "λmax(SHS), layer", "λmax(SHS), node")
    for title, (name, values) in zip(titles, curves.items(), strict=True):
        if name != plain:
            assert max(values) / min(values) - 1 < 1e-8, (name, values)
        axes.loglog(ALPHAS, values, "o-", label=title)
    axes.loglog(ALPHAS, [entry / a**2 for a in ALPHAS], "k--", label="γ / α²")
    axes.set_title("Spectral norms at a minimum")


def theorem_2(axes: Axes) -> None:
    """With α = (β², 1/β, 1/β) exactly rank(H_SS) eigenvalues grow without bound."""
    objective = at_zero_loss(2, 3, 3, 3)
    chain, matrix = Chain.of(objective.model()), dense_hessian(objective)
    shrinking = shrunk(objective, chain)
    count = rank(matrix[shrinking][:, shrinking])
    sizes = [objective.parameters[one.weight].numel() for one in chain.layers]
    assert count >= rank(matrix) - min(sizes), (count, rank(matrix), sizes)
    inside = torch.linalg.eigvalsh(matrix[shrinking][:, shrinking]).flip(0)[:count]
    for beta in (1.0, 10.0, 100.0):
        alphas = (beta**2, 1 / beta, 1 / beta)
        moved = objective.at(rescale_layers(objective.parameters, chain, alphas))
        values = torch.linalg.eigvalsh(dense_hessian(moved)).flip(0)[:count]
        assert bool((values >= beta**2 * inside * (1 - 1e-9)).all()), (beta, values)
        axes.semilogy(range(1, count + 1), values, "o-", ms=3, label=f"β = {beta:g}")
    axes.set_title(f"Theorem 2: the first {count} of {len(matrix)}")


def shrunk(objective: fg.Objective, chain: Chain) -> Tensor:
    """Which parameters the map of Theorem 2 makes smaller."""
    ones = {n: torch.ones_like(t) for n, t in objective.parameters.items()}
    return ravel(rescale_layers(ones, chain, (4.0, 0.5, 0.5))) < 1


def rank(matrix: Tensor) -> int:
    return int(torch.linalg.matrix_rank(matrix, rtol=1e-9, hermitian=True))


def draw(path: Path) -> None:
    figure, panels = plt.subplots(1, 3, figsize=(11, 3.4), layout="constrained")
    for axes, panel in zip(panels, (theorem_1, spectral_norms, theorem_2), strict=True):
        panel(axes)
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    for axes in panels[:2]:
        axes.set_xlabel("α, the scale of the first layer")
    panels[2].set_xlabel("eigenvalue of the Hessian, sorted")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    draw(PICTURE)
    print(f"wrote {PICTURE.name}: every curve agrees with its theorem")
