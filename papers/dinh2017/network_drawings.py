"""Figures on Theorem 1 in many networks, and on ε-sharpness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from papers.dinh2017.colors import BLUE, COLORS, GREY, MARKS, RED
from papers.experiment import Results
from papers.figures import new_figure, save


def gradients(results: Results, path: Path) -> None:
    """The norm of the gradient over its value at α = 1, for every kind of network."""
    figure, (axes,) = new_figure(width=8.4)
    exponents = results.records["theorem1-networks"]["settings"]["exponents"]
    alphas = [10.0**exponent for exponent in exponents]
    for index, one in enumerate(results["theorem1-networks"]["networks"]):
        ratios = [value / one["norms"][0] for value in one["norms"]]
        look = {"color": COLORS[index], "lw": 1, "ms": 5, "mfc": "none"}
        label = one["network"]
        axes.loglog(alphas, ratios, f"{MARKS[index]}-", label=label, **look)
    line = [1 / alpha for alpha in alphas]
    axes.loglog(alphas, line, ":", color=GREY, label="1/α")
    axes.set_xlabel("α")
    axes.set_ylabel("‖∇L‖ / ‖∇L‖ at α = 1")
    axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    axes.grid(alpha=0.3)
    save(figure, path)


def epsilon_sharpness(found: dict[str, Any], path: Path) -> None:
    """The measured rise of the loss beside the quadratic term."""
    figure, panels = new_figure(2, width=4.8, height=4.0)
    titles = {
        "small": "a small network at a critical point",
        "images": "trained on images",
    }
    for axes, (name, title) in zip(panels, titles.items(), strict=True):
        network = found["networks"][name]
        for curve, color in zip(
            network["curves"], (BLUE, RED, GREY)[: len(network["curves"])], strict=True
        ):
            pairs = list(zip(network["epsilons"], curve["points"], strict=True))
            quadratic = [one["quadratic"] for _, one in pairs]
            axes.loglog(network["epsilons"], quadratic, "--", color=color, lw=1)
            for trusted in (True, False):
                some = [pair for pair in pairs if pair[1]["trusted"] is trusted]
                axes.loglog(
                    [epsilon for epsilon, _ in some],
                    [one["value"] for _, one in some],
                    "o",
                    color=color,
                    mfc=color if trusted else "none",
                    ms=5,
                    label=f"α = {curve['alpha']:g}" if trusted else None,
                )
        axes.plot([], [], "--", color="black", lw=1, label="λmax ε²/2(1+L)")
        axes.set_xlabel("ε")
        axes.set_title(title, fontsize=10)
        axes.legend(fontsize=8)
        axes.grid(alpha=0.3)
    panels[0].set_ylabel("ε-sharpness")
    save(figure, path)
