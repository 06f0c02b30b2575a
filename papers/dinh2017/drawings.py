"""The figures, from stored results only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from papers.dinh2017.colors import BLUE, COLORS, GREY, MARKS, RED
from papers.dinh2017.network_drawings import epsilon_sharpness, gradients
from papers.dinh2017.network_findings import orbit_runs
from papers.dinh2017.ranking import spectral_norm
from papers.dinh2017.ranking_drawings import distances, several_minima
from papers.dinh2017.representation import REPRESENTATIONS
from papers.experiment import Results
from papers.figures import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw(results: Results, folder: Path) -> None:
    """Every figure whose runs are there."""
    if "radial-map" in results:
        radial_map(results["radial-map"], folder / "radial-map.svg")
    for network in ("linear", "biases", "convolutions"):
        runs = orbit_runs(network)
        if all(run in results for run in runs):
            name = "orbit.svg" if network == "linear" else f"orbit-{network}.svg"
            orbit([results[run] for run in runs], folder / name)
    if "epsilon-sharpness" in results:
        epsilon_sharpness(results["epsilon-sharpness"], folder / "epsilon.svg")
    if "theorem1-networks" in results:
        gradients(results, folder / "gradients.svg")
    if "several-minima" in results:
        several_minima(results["several-minima"], folder / "several-minima.svg")
    if "distances" in results:
        distances(results["distances"], folder / "distances.svg")
    if "volume" in results:
        volume(results["volume"], folder / "volume.svg")
    if "theorem1" in results and "theorem2-without-biases" in results:
        theorems(results, folder / "theorems.svg")
    if "ranking" in results:
        ranking(results["ranking"], folder / "ranking.svg")
    if "representation" in results:
        representation(results["representation"], folder / "representation.svg")


def radial_map(found: dict[str, Any], path: Path) -> None:
    """Figure 1 of the supplement: ψ, and the plane after g⁻¹."""
    figure, (left, right) = new_figure(2, width=4.4, height=4.0)
    distances, values = found["lines"]["profile"]
    for index, color in enumerate((BLUE, RED, GREY)):
        ends = slice(index, index + 2)
        left.plot(distances[ends], values[ends], color=color, lw=2)
    left.plot([0, distances[-1]], [0, distances[-1]], ":", color=GREY, lw=1)
    names = (("r̂", found["rhat"]), ("δ", found["delta"]))
    left.set_xticks([value for _, value in names], [name for name, _ in names])
    names = (("ρ", found["rho"]), ("δ", found["delta"]))
    left.set_yticks([value for _, value in names], [name for name, _ in names])
    left.grid(alpha=0.4)
    left.set_xlabel("r")
    left.set_title("(a) ψ(r, r̂, δ, ρ)")
    disc(right, found["delta"], RED)
    disc(right, found["rho"], BLUE)
    for across, up in found["lines"]["horizontal"]:
        right.plot(across, up, color="black", lw=0.6)
        right.plot(up, across, color="black", lw=0.6)
    right.set_aspect("equal")
    right.set_xticks([])
    right.set_yticks([])
    right.set_title("(b) a square grid after g⁻¹")
    save(figure, path)


def disc(axes: Axes, radius: float, color: str) -> None:
    from matplotlib.patches import Circle

    axes.add_patch(Circle((0, 0), radius, facecolor="white", lw=0))
    axes.add_patch(Circle((0, 0), radius, facecolor=color, alpha=0.35, lw=0))


def orbit(orbits: list[dict[str, Any]], path: Path) -> None:
    """Every measure over its value at α = 1."""
    figure, panels = new_figure(2, width=5.2, height=5.6)
    titles = (
        "whole layers: the first times α, the last over α",
        "unit by unit: factors α^s, s from -1 to 1",
    )
    for axes, found, title in zip(panels, orbits, titles, strict=True):
        for index, row in enumerate(found["measures"]):
            style = f"{'-' if row['claims'] else '--'}{MARKS[index]}"
            # Markers shrink, so that flat lines on top of each other can all be seen.
            look = {"ms": 9 - 0.6 * index, "lw": 1.2, "color": COLORS[index]}
            name, values = row["measure"], row["ratios"]
            axes.loglog(found["alphas"], values, style, label=name, mfc="none", **look)
        axes.set_xlabel("α")
        axes.set_title(title, fontsize=10)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("measure / measure at α = 1")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=8)
    save(figure, path)


def volume(found: dict[str, Any], path: Path) -> None:
    """The volume in a box against its side."""
    figure, (axes,) = new_figure()
    rows = found["sides"]
    sides = [row["side"] for row in rows]
    axes.semilogx(
        sides, [row["closed form"] for row in rows], color=GREY, label="closed form"
    )
    for name, color, label in (
        ("sampled", BLUE, "sampling the box"),
        ("rays", RED, "rays from (1, 1)"),
    ):
        axes.errorbar(
            sides,
            [row[name] for row in rows],
            [2 * row[f"{name} error"] for row in rows],
            fmt="o",
            color=color,
            capsize=3,
            label=label,
        )
    axes.set_xlabel("R, the side of the box (0, R)²")
    axes.set_ylabel("volume of {L < ε}")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    save(figure, path)


def theorems(results: Results, path: Path) -> None:
    """Theorem 1: the gradient. Theorem 2: how many eigenvalues pass a bound."""
    figure, (left, right) = new_figure(2, width=4.8)
    found = results["theorem1"]
    left.loglog(found["alphas"], found["norms"], "o", color=BLUE, label="‖∇L‖")
    line = [found["first layer"] / alpha for alpha in found["alphas"]]
    left.loglog(found["alphas"], line, "--", color=GREY, label="‖∇₁L‖ / α")
    left.set_xlabel("α")
    left.set_title("Theorem 1: the gradient of (αθ₁, θ₂/α)", fontsize=10)
    for name, color, label in (
        ("theorem2-without-biases", BLUE, "without biases"),
        ("theorem2-with-biases", RED, "with biases"),
    ):
        networks = [
            one for one in results.get(name, {}).get("networks", []) if "rank" in one
        ]
        if networks:
            one = max(networks, key=lambda network: network["rank"])
            right.semilogx(
                one["betas"], one["counts"], "o-", ms=4, color=color, label=label
            )
            right.axhline(one["claimed"], ls="--", color=color, lw=1)
            right.axhline(one["exact"], ls=":", color=color, lw=1)
    right.plot([], [], "--", color=GREY, label="r - min n")
    right.plot([], [], ":", color=GREY, label="rank of H on S")
    right.set_xlabel("β")
    right.set_ylabel("eigenvalues above 100 λ₁")
    right.set_title("Theorem 2: how many grow", fontsize=10)
    for axes in (left, right):
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    save(figure, path)


def ranking(found: dict[str, Any], path: Path) -> None:
    """The two spectral norms before and after the change of coordinates."""
    figure, (axes,) = new_figure(width=4.4)
    for which, color in (("flat", BLUE), ("sharp", RED)):
        network = found[which]
        values = [spectral_norm(found[time][network]) for time in ("before", "after")]
        axes.semilogy([0, 1], values, "o-", color=color, label=network)
    axes.set_xticks([0, 1], ["own coordinates", "after the radial map"])
    axes.set_xlim(-0.3, 1.3)
    axes.set_ylabel("largest eigenvalue of the Hessian")
    axes.legend(fontsize=8)
    axes.grid(alpha=0.3)
    save(figure, path)


def representation(found: dict[str, Any], path: Path) -> None:
    """Errors and likelihoods of nearest neighbours against linear regression."""
    figure, (left, right) = new_figure(2, width=4.8)
    base, *others = found["models"]
    counts = [int(one["neighbours"]) for one in others]
    for kind, color, mark in zip(
        REPRESENTATIONS, (GREY, BLUE, RED), "osD", strict=True
    ):
        own = [one[kind] for one in others]
        error, likelihood = "mean squared error", "log-likelihood"
        ratios = [one[error] / base[kind][error] for one in own]
        gains = [one[likelihood] - base[kind][likelihood] for one in own]
        left.semilogx(counts, ratios, f"{mark}-", color=color, label=kind)
        right.semilogx(counts, gains, f"{mark}-", color=color, label=kind, mfc="none")
    left.axhline(1, color="black", lw=0.8)
    right.axhline(0, color="black", lw=0.8)
    left.set_title("mean squared error / that of linear regression", fontsize=10)
    right.set_title("log-likelihood minus that of linear regression", fontsize=10)
    for axes in (left, right):
        axes.set_xticks(counts, [str(count) for count in counts])
        axes.minorticks_off()
        axes.set_xlabel("nearest neighbours")
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    save(figure, path)
