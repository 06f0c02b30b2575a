"""Figures 3 and 4: the accuracy gap against normalized sharpness and against the trace."""

from __future__ import annotations

from pathlib import Path

from papers.experiment import Results
from papers.figures import new_figure, save
from papers.tsuzuku2019.generalization import PAPERS, TITLES, TRACE, pairs, value

NAMES = {PAPERS: "figure3.svg", TRACE: "figure4.svg"}
LABELS = {PAPERS: "normalized sharpness", TRACE: "trace of the Hessian"}


def figures(results: Results, folder: Path) -> None:
    """One figure for each measure, one panel for each pair, as the paper draws them.

    The measure is rescaled to [0, 1] by its extremes among the networks, colours are
    shares of random labels, and networks that did not fit are hollow.
    """
    trained = list(pairs(results))
    if not trained:
        return
    from matplotlib import colormaps

    shades = colormaps["viridis"]
    for request, name in NAMES.items():
        figure, panels = new_figure(len(trained), width=3.6, height=3.3)
        for panel, (pair, networks) in zip(panels, trained, strict=True):
            known = [(one, value(one, request)) for one in networks]
            drawn = [(one, v) for one, v in known if v is not None]
            low = min((v for _, v in drawn), default=0.0)
            width = max((v for _, v in drawn), default=1.0) - low or 1.0
            for one, v in drawn:
                shade = shades(0.95 * one["ratio"])
                panel.plot(
                    (v - low) / width,
                    one["gap"],
                    "o",
                    markersize=4.5,
                    markeredgecolor=shade,
                    markerfacecolor=shade if one["fitted"] else "none",
                )
            panel.set_title(TITLES[pair], fontsize="medium")
            panel.set_xlabel(f"{LABELS[request]}, rescaled")
        panels[0].set_ylabel("accuracy gap")
        save(figure, folder / name)
