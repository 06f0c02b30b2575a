"""Figures that are the same, byte for byte, whenever they are drawn from the same results."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING

from papers.store import write

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def new_figure(
    columns: int = 1, *, width: float = 5.0, height: float = 3.6
) -> tuple[Figure, list[Axes]]:
    """A figure of some panels side by side.

    Args:
        columns: how many panels.
        width: of one panel, in inches.
        height: in inches.
    """
    import matplotlib.figure

    figure = matplotlib.figure.Figure(
        figsize=(width * columns, height), layout="constrained"
    )
    panels = figure.subplots(1, columns, squeeze=False)[0]
    return figure, list(panels)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, without a date, its identifiers from a fixed salt."""
    import matplotlib

    text = io.StringIO()
    with matplotlib.rc_context({"svg.hashsalt": "flatgauge"}):
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    write(path, text.getvalue())
