"""Small multiples: a curve for each measure over the steps of runs, as SVG without scripts.

Colours never repeat: with one run they follow its steps from light to dark, with several
runs each has a hue of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from colorsys import hls_to_rgb
from html import escape
from typing import Any, NamedTuple

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

HUES = (25, 325)
"""The hues of the first and the last of several runs, in degrees."""


class Spot(NamedTuple):
    """A number in a figure."""

    run: str
    x: float
    y: float
    error: float
    shade: float
    trusted: bool
    note: str


def multiple(series: Plain, request: str, logarithm: bool = False) -> str:
    """The figure of one measure; "" where it has no numbers.

    Args:
        series: what `Series.to_dict` gives.
        request: the measure.
        logarithm: whether the number is one already, and needs no other axis.
    """
    spots = list(_spots(series, request))
    if not spots:
        return ""
    across = Axis([spot.x for spot in spots], LEFT, WIDTH - RIGHT, False)
    ends = [end for one in spots for end in (one.y - one.error, one.y + one.error)]
    up = Axis(ends, HEIGHT - BOTTOM, TOP, _is_wide(spots, logarithm))
    parts = [*grid(across, up)]
    for run in series["runs"]:
        own = [spot for spot in spots if spot.run == run]
        path = " ".join(f"{across(one.x):.1f},{up(one.y):.1f}" for one in own)
        parts.append(f'<g style="{shade(series, run)}"><polyline points="{path}"/>')
        parts += [_mark(spot, across, up) for spot in own]
        parts.append("</g>")
    label = escape(f"{request} over {axis_name(series)}s; the table has the numbers.")
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">'
        + "".join(parts)
        + "</svg>"
    )


def series_figures(
    series: Plain, logarithms: Collection[str] = ()
) -> dict[str, Figure]:
    """The same as figures for files, in the words of `flatgauge.report.drawing`.

    Args:
        series: what `Series.to_dict` gives.
        logarithms: the measures that are logarithms already.
    """
    found = {}
    for request in series["measures"]:
        spots = list(_spots(series, request))
        wide = _is_wide(spots, request in logarithms)
        layout = {
            "height": 380,
            "xaxis": {"title": {"text": axis_name(series)}},
            "yaxis": {
                "title": {"text": plot_text(request)},
                **({"type": "log"} if wide else {}),
            },
        }
        data = [
            _curve(run, [spot for spot in spots if spot.run == run], _hex(series, run))
            for run in series["runs"]
        ]
        name = re.sub(r"[^\w-]+", "-", request).strip("-")
        found[name] = {"data": data if spots else [], "layout": layout}
    return found


def _curve(run: str, spots: Sequence[Spot], color: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": plot_text(run, 40),
        "showlegend": bool(run),
        "x": [spot.x for spot in spots],
        "y": [spot.y for spot in spots],
        "error_y": {"array": [spot.error for spot in spots]},
        "line": {"color": color, "width": 1.5},
        "marker": {"color": color, "size": 5},
    }


def _hex(series: Plain, run: str) -> str:
    """The colour of a run in a file, which is no reader's own."""
    runs = series["runs"]
    if len(runs) < 2:
        return "@accent"
    parts = hls_to_rgb(0.9 * runs.index(run) / len(runs), 0.4, 0.7)
    return "#" + "".join(f"{round(255 * part):02x}" for part in parts)


def _is_wide(spots: Sequence[Spot], logarithm: bool) -> bool:
    """Whether an axis from the lowest end of a bar to the highest is logarithmic."""
    if not spots or logarithm:
        return False
    low = min(spot.y - spot.error for spot in spots)
    return low > 0 and max(spot.y + spot.error for spot in spots) / low > WIDE


def axis_name(series: Plain) -> str:
    """What curves go over: steps, or checkpoints where not all steps are known."""
    known = all(point["step"] is not None for point in series["points"])
    return "step" if known else "checkpoint"


def shade(series: Plain, run: str) -> str:
    """The style of a run: its hue, if there are several."""
    runs = series["runs"]
    if len(runs) < 2:
        return ""
    first, last = HUES
    hue = first + (last - first) * runs.index(run) / (len(runs) - 1)
    return f"--tone: oklch(var(--lightness) .14 {hue:.2f})"


def _spots(series: Plain, request: str) -> Iterable[Spot]:
    stepped = axis_name(series) == "step"
    for run in series["runs"]:
        own = [point for point in series["points"] if point["run"] == run]
        for index, point in enumerate(own):
            found = point["values"].get(request, {})
            if not finite(found.get("value")):
                continue
            error = max(found["uncertainty"] or 0, found["data_uncertainty"] or 0)
            status = Status[found["status"]]
            shown = number(found["value"]) + (f" ± {number(error, 2)}" if error else "")
            yield Spot(
                run,
                float(point["step"] if stepped else index + 1),
                float(found["value"]),
                float(error),
                index / max(len(own) - 1, 1),
                status.trusted,
                f"{point['name']}: {shown} ({status.word})",
            )


def _mark(spot: Spot, across: Axis, up: Axis) -> str:
    x, y = f"{across(spot.x):.1f}", f"{up(spot.y):.1f}"
    bar = ""
    if spot.error:
        top, low = (f"{up(spot.y + sign * spot.error):.1f}" for sign in (1, -1))
        bar = f'<line class="bar" x1="{x}" x2="{x}" y1="{top}" y2="{low}"/>'
    kind = "spot" if spot.trusted else "spot hollow"
    ramp = f"--share: {100 * spot.shade:.2f}%"
    note = escape(spot.note)
    return (
        f'<g style="{ramp}"><title>{note}</title>{bar}'
        f'<circle class="{kind}" cx="{x}" cy="{y}" r="3.2"/></g>'
    )


def plain_values(found: Plain) -> dict[str, Any]:
    """A number of a series for a table."""
    status = Status[found["status"]]
    error = found["uncertainty"]
    bound = "≥ " if found["lower_bound"] else ""
    return {
        "value": bound + number(found["value"]),
        "uncertainty": "" if error is None else number(error, 2),
        "trusted": status.trusted,
        "word": status.word,
        "message": found["message"],
    }
