"""The figures of the page: 1 and 2, and the paper's measure against the train loss."""

from __future__ import annotations

import math
from pathlib import Path

from papers.experiment import Results
from papers.figures import new_figure, save
from papers.rangamani2019 import cifar_cells, convergence, figure2
from papers.rangamani2019.figure2 import COLOURS
from papers.rangamani2019.minima import (
    NETWORK_TITLES,
    PROTOCOL_TITLES,
    Cell,
    cells,
    points,
)

MARKERS = {"authors": "o", "printed": "s", "clean": "^"}


def draw(results: Results, folder: Path) -> None:
    """Every figure whose runs were made."""
    convergence.draw(results, folder)
    figure2.draw(results, folder)
    draw_losses(cells(results), folder / "losses.svg")
    draw_losses(cifar_cells.cells(results), folder / "losses-cifar10.svg")


def draw_losses(made: list[Cell], path: Path) -> None:
    """The paper's measure against the train loss, one point a trained network."""
    shapes = [name for name in NETWORK_TITLES if any(c.network == name for c in made)]
    if not shapes:
        return
    figure, panels = new_figure(len(shapes), width=4.6, height=3.8)
    for panel, shape in zip(panels, shapes, strict=True):
        for cell in (one for one in made if one.network == shape):
            for side, batch in zip(("small", "large"), cell.sizes, strict=True):
                networks = cell.small if side == "small" else cell.large
                found = points(networks)
                panel.scatter(
                    [math.exp(x) for x, _ in found],
                    [math.exp(y) for _, y in found],
                    color=COLOURS[side],
                    marker=MARKERS[cell.protocol],
                    alpha=0.7,
                    label=f"batches of {batch}, {PROTOCOL_TITLES[cell.protocol]}",
                )
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_title(NETWORK_TITLES[shape])
        panel.set_xlabel("train loss")
        panel.legend(fontsize=7)
    panels[0].set_ylabel("Riemannian spectral norm")
    save(figure, path)
