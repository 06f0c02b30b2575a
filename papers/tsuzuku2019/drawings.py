"""The figures: growing norms, (62) against λ and its shape; Algorithm 1 has its own file."""

from __future__ import annotations

import math
from pathlib import Path

from papers.experiment import Results
from papers.figures import new_figure, save
from papers.tsuzuku2019 import figure, scatter

UNBOUNDED, NOISE = "unbounded.svg", "noise.svg"
# The colours of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
MATRICES = {"first": "W⁽¹⁾", "second": "W⁽²⁾"}
GROWING = {
    "normalized-sharpness": "(17)",
    "matrix-normalized-sharpness": "(13)",
    "hessian-trace": "trace of the Hessian",
    "bartlett": "Bartlett et al.",
    "neyshabur": "Neyshabur et al.",
}


def figures(results: Results, folder: Path) -> None:
    """Every figure whose runs were made."""
    figure.figures(results, folder)
    scatter.figures(results, folder)
    draw_unbounded(results, folder)
    draw_noise(results, folder)


def draw_unbounded(results: Results, folder: Path) -> None:
    """Norms, stable ranks, and what is made of them, against α."""
    if "unbounded" not in results:
        return
    steps = results["unbounded"]["steps"]
    alphas = [one["alpha"] for one in steps]
    drawn, (norms, ranks, measures) = new_figure(3, width=3.9)
    for colour, (key, label) in zip(COLOURS, MATRICES.items(), strict=False):
        for name, dash in (("frobenius", "-"), ("spectral", "--")):
            kind = "F" if name == "frobenius" else "2"
            values = [one[key][name] for one in steps]
            norms.plot(alphas, values, dash, color=colour, label=f"‖{label}‖ {kind}")
        above = [one[key]["above_one"] for one in steps]
        ranks.plot(alphas, above, "o-", color=colour, label=label)
    for colour, (name, label) in zip(COLOURS, GROWING.items(), strict=False):
        values = [one[name] / steps[0][name] for one in steps]
        measures.plot(alphas, values, "o-", color=colour, label=label)
    titles = ("norms", "stable rank − 1", "over the value at α = 1")
    for panel, title in zip((norms, ranks, measures), titles, strict=True):
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlabel("α")
        panel.set_title(title, fontsize="medium")
        panel.legend(frameon=False, fontsize="small")
    save(drawn, folder / UNBOUNDED)


def draw_noise(results: Results, folder: Path) -> None:
    """Left (62) and (17) times √λ against λ, right (62) along the size of the noise."""
    names = [name for name in results if name in ("noise-1", "noise-2", "noise-3")]
    if not names or "noise-profile" not in results:
        return
    drawn, (left, right) = new_figure(2, width=4.8)
    for colour, name in zip(COLOURS, names, strict=False):
        values = results[name]["values"]
        lams = [one["lambda"] for one in values]
        roots = [math.sqrt(lam) for lam in lams]
        left.errorbar(
            lams,
            [r * one["direct"] for r, one in zip(roots, values, strict=True)],
            [r * one["error"] for r, one in zip(roots, values, strict=True)],
            marker="o",
            markersize=3,
            color=colour,
            label=f"(62), {results[name]['label']}",
        )
        left.plot(
            lams,
            [r * one["second_order"] for r, one in zip(roots, values, strict=True)],
            ":",
            color=colour,
            label=f"(17), {results[name]['label']}",
        )
    left.set_xscale("log")
    left.set_yscale("log")
    left.set_xlabel("λ")
    left.set_title("times √λ", fontsize="medium")
    left.legend(frameon=False, fontsize=7)
    result = results["noise-profile"]
    bounded = next(one for one in result["profiles"] if one["loss"] != "cross-entropy")
    for colour, one in zip(COLOURS, bounded["lambdas"], strict=False):
        label = f"λ = {one['lambda']:g}"
        right.plot(result["log_noise"], one["curve"], color=colour, label=label)
    right.set_ylim(0, 8)
    right.set_xlabel(
        "t, the logarithm of the variances over the best for (17) at λ = 1"
    )
    right.set_title("(62) under the normalized loss", fontsize="medium")
    right.legend(frameon=False, fontsize="small")
    save(drawn, folder / NOISE)
