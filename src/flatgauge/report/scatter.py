"""Scatter plots of a study: a measure across, the target up, as SVG without scripts."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from flatgauge.report.axes import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDE,
    WIDTH,
    Axis,
    grid,
)
from flatgauge.report.drawing import Figure
from flatgauge.report.formatting import finite, number, plot_text
from flatgauge.results import Plain
from flatgauge.vocabulary import Status


def scatter(study: Plain, request: str, logarithm: bool = False) -> str:
    """The figure of one measure; "" where it has no numbers.

    Args:
        study: what `Study.to_dict` gives.
        request: the measure.
        logarithm: whether the number is one already, and needs no other axis.
    """
    spots = _spots(study, request)
    if not spots:
        return ""
    across_values = [spot["x"] for spot in spots]
    across = Axis(
        across_values, LEFT, WIDTH - RIGHT, _is_wide(across_values, logarithm)
    )
    up = Axis([spot["y"] for spot in spots], HEIGHT - BOTTOM, TOP, False)
    marks = [
        f'<g style="--share: {100 * spot["shade"]:.2f}%"><title>{escape(spot["note"])}'
        f'</title><circle class="spot{"" if spot["trusted"] else " hollow"}" '
        f'cx="{across(spot["x"]):.1f}" cy="{up(spot["y"]):.1f}" r="3.2"/></g>'
        for spot in spots
    ]
    target = study["plan"]["target"]
    label = escape(f"{target} over {request}; the table has the numbers.")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        + "".join([*grid(across, up, whole=False), *marks])
        + "</svg>"
    )


def study_figures(study: Plain, logarithms: list[str]) -> dict[str, Figure]:
    """The same as figures for files, in the words of `flatgauge.report.drawing`."""
    found = {}
    for request in study["measures"]:
        spots = _spots(study, request)
        across = [spot["x"] for spot in spots]
        wide = _is_wide(across, request in logarithms)
        layout = {
            "height": 380,
            "xaxis": {
                "title": {"text": plot_text(request)},
                **({"type": "log"} if wide else {}),
            },
            "yaxis": {"title": {"text": plot_text(study["plan"]["target"])}},
        }
        trace = {
            "type": "scatter",
            "mode": "markers",
            "showlegend": False,
            "x": across,
            "y": [spot["y"] for spot in spots],
            "marker": {"color": "@accent", "size": 5},
        }
        name = re.sub(r"[^\w-]+", "-", request).strip("-")
        found[name] = {"data": [trace] if spots else [], "layout": layout}
    return found


def shaded_by(study: Plain) -> str:
    """The column that shades follow: the environments, or the first hyperparameter."""
    plan = study["plan"]
    return plan["environments"] or next(iter(plan["hyperparameters"]), "")


def shades(study: Plain) -> list[str]:
    """The settings in that column, from light to dark: numbers by size, if they are."""
    column = shaded_by(study)
    if not column:
        return []
    found = list(dict.fromkeys(str(one["row"][column]) for one in study["networks"]))
    try:
        return sorted(found, key=float)
    except ValueError:
        return sorted(found)


def _spots(study: Plain, request: str) -> list[dict[str, Any]]:
    plan, order = study["plan"], shades(study)
    spots = []
    for one in study["networks"]:
        found = one["values"].get(request, {})
        entry = one["row"][plan["target"]]
        target = None if entry in (None, "") else float(entry)
        if not (finite(found.get("value")) and finite(target)):
            continue
        status = Status[found["status"]]
        setting = str(one["row"][shaded_by(study)]) if order else ""
        spots.append(
            {
                "x": float(found["value"]),
                "y": target,
                "trusted": status.trusted,
                "shade": order.index(setting) / max(len(order) - 1, 1) if order else 1,
                "note": f"{one['name']}: {number(found['value'])} ({status.word}), "
                f"{plan['target']} {number(target)}",
            }
        )
    return spots


def _is_wide(values: list[float], logarithm: bool) -> bool:
    low = min(values, default=0.0)
    return not logarithm and low > 0 and max(values) / low > WIDE
