"""The figures, as plain data: see `flatgauge.report.drawing` for the words."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

from flatgauge.report.formatting import finite, plot_text
from flatgauge.report.multiples import series_figures
from flatgauge.report.ratios import SERIES, Figure, audit_figure, comparison_figure
from flatgauge.results import Plain

DECADES = 7
"""Powers of ten of the density that are shown below its peak."""


def figures(report: Plain) -> dict[str, Figure]:
    """Every figure that the report has data for, by the name of its place."""
    extras = report["extras"]
    drawn = {
        "audit": audit_figure,
        "comparison": comparison_figure,
        "spectrum": spectrum_figure,
    }
    found = {
        name: draw(extras[name]) for name, draw in drawn.items() if extras.get(name)
    }
    if extras.get("series"):
        about = extras.get("measures", {})
        logarithms = [one for one in about if about[one].get("logarithmic")]
        found |= series_figures(extras["series"], logarithms)
    for index, group in enumerate(landscape_groups(extras.get("landscapes") or [])):
        found[f"landscape-{index}"] = landscape_figure(group)
    return {name: figure for name, figure in found.items() if figure["data"]}


def spectrum_figure(spectrum: Plain) -> Figure:
    """The density of the eigenvalues on a log axis, with its standard error."""
    grid, density = spectrum["grid"], spectrum["density"]
    top = max(density)
    floor = top * 10.0**-DECADES
    errors = spectrum["standard_error"]
    upper = [max(d + e, floor) for d, e in zip(density, errors, strict=True)]
    lower = [max(d - e, floor) for d, e in zip(density, errors, strict=True)]
    data: list[Figure] = []
    if any(errors):
        data.append(
            {
                "type": "scatter",
                "mode": "lines",
                "name": "± standard error",
                "x": [*grid, *reversed(grid)],
                "y": [*upper, *reversed(lower)],
                "fill": "toself",
                "fillcolor": "@band",
                "line": {"width": 0},
            }
        )
    data.append(
        {
            "type": "scatter",
            "mode": "lines",
            "name": "density",
            "x": grid,
            "y": [value if value >= floor else None for value in density],
            "line": {"color": "@accent", "width": 2},
        }
    )
    values = spectrum.get("eigenvalues", {}).get("values") or []
    if values:
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": "top eigenvalues",
                "x": values,
                "y": [floor * 2] * len(values),
                "marker": {"symbol": "line-ns-open", "size": 16, "color": "@warm"},
            }
        )
    return {
        "data": data,
        "layout": {
            "height": 380,
            "xaxis": {"title": {"text": "eigenvalue"}},
            "yaxis": {
                "type": "log",
                "range": [log10(floor), log10(top) + 0.3],
                "title": {"text": "density"},
                "exponentformat": "power",
                "nticks": 6,
            },
        },
    }


def landscape_groups(landscapes: Sequence[Plain]) -> list[list[Plain]]:
    """Lines of one kind share a figure; a plane has its own."""
    groups: dict[Any, list[Plain]] = {}
    for index, one in enumerate(landscapes):
        line = len(one["axes"]) == 1
        key = (one["kind"], one["normalize"]) if line else index
        groups.setdefault(key, []).append(one)
    return list(groups.values())


def landscape_figure(group: Sequence[Plain]) -> Figure:
    """Curves, or the contours of one plane."""
    first = group[0]
    if len(first["axes"]) == 2:
        return _plane(first)
    every = [loss for one in group for loss in one["losses"] if finite(loss)]
    wide = bool(every) and min(every) > 0 and max(every) / min(every) > 1e3
    kind = {"type": "log", "exponentformat": "power", "dtick": 1} if wide else {}
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": plot_text(one["title"], 40),
                "x": one["axes"][0],
                "y": one["losses"],
                "line": {"color": SERIES[index % len(SERIES)], "width": 2},
            }
            for index, one in enumerate(group)
        ],
        "layout": {
            "height": 360,
            "xaxis": {"title": {"text": plot_text(first["labels"][0])}},
            "yaxis": {"title": {"text": "loss"}, **kind},
        },
    }


def _plane(one: Plain) -> Figure:
    columns = list(zip(*one["losses"], strict=True))
    origin = {
        "type": "scatter",
        "mode": "markers",
        "name": "the point",
        "x": [0],
        "y": [0],
        "marker": {"symbol": "cross-thin-open", "size": 14, "color": "@ink"},
        "showlegend": False,
    }
    contours = {
        "type": "contour",
        "x": one["axes"][0],
        "y": one["axes"][1],
        "z": [list(column) for column in columns],
        "colorscale": "@scale",
        "ncontours": 18,
        "line": {"width": 0.6, "color": "@ink"},
        "colorbar": {"title": {"text": "loss"}, "thickness": 12, "outlinewidth": 0},
    }
    return {
        "data": [contours, origin],
        "layout": {
            "height": 460,
            **{
                axis: {"title": {"text": plot_text(label)}, "zeroline": False}
                for axis, label in zip(("xaxis", "yaxis"), one["labels"], strict=True)
            },
        },
    }
