"""The figures, as plain data: see `flatgauge.report.drawing` for the words."""

from __future__ import annotations

from math import log10

from flatgauge.report.multiples import series_figures
from flatgauge.report.ratios import Figure, audit_figure, comparison_figure
from flatgauge.report.scatter import study_figures
from flatgauge.report.slices import landscape_figure, landscape_groups
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
    about = extras.get("measures", {})
    logarithms = [one for one in about if about[one].get("logarithmic")]
    for name, draw_all in {"series": series_figures, "study": study_figures}.items():
        if extras.get(name):
            found |= draw_all(extras[name], logarithms)
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
            },
        },
    }
