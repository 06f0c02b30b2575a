"""Figures of rankings that change: several minima, and models of the data."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from papers.dinh2017.colors import COLORS, MARKS
from papers.dinh2017.ranking import RANKED_BY
from papers.dinh2017.representation import REPRESENTATIONS
from papers.dinh2017.several_minima import MOVES
from papers.figures import new_figure, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INVARIANT = "riemannian-spectral-norm[metric=node]"


def several_minima(found: dict[str, Any], path: Path) -> None:
    """Two measures of every minimum, before and after each move."""
    figure, panels = new_figure(2, width=5.2, height=4.2)
    columns = [found["before"], *(found["moves"][move]["values"] for move in MOVES)]
    for axes, name in zip(panels, (RANKED_BY, INVARIANT), strict=True):
        for index in range(len(found["before"])):
            values = [column[index][name]["value"] for column in columns]
            lines(axes, values, index, f"minimum {index + 1}")
        names = ["own", *(move.replace(" ", "\n") for move in MOVES)]
        axes.set_xticks(range(len(names)), names, fontsize=8)
        axes.set_title(name, fontsize=10)
    panels[0].legend(fontsize=7, ncols=2)
    save(figure, path)


def distances(found: dict[str, Any], path: Path) -> None:
    """W2 and a divergence of every model, in each representation."""
    figure, panels = new_figure(2, width=4.6, height=4.8)
    for axes, name in zip(panels, ("W2", "Kullback-Leibler"), strict=True):
        for index, one in enumerate(found["models"][1:]):
            values = [one[kind][name] for kind in REPRESENTATIONS]
            lines(axes, values, index, one["model"])
        axes.set_xticks(range(len(REPRESENTATIONS)), REPRESENTATIONS, fontsize=9)
        axes.set_title(name, fontsize=10)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, fontsize=8)
    save(figure, path)


def lines(axes: Axes, values: list[float], index: int, label: str) -> None:
    """One line of a panel in which lines that cross are rankings that change."""
    look = {"color": COLORS[index], "lw": 1, "ms": 5, "mfc": "none"}
    axes.semilogy(range(len(values)), values, f"{MARKS[index]}-", label=label, **look)
    axes.grid(alpha=0.3)
