"""Figures as SVG or PNG, drawn by matplotlib from plain data.

A figure is a mapping in the words of Plotly, of which this is what is understood: traces
of the types "scatter" (lines, markers, error bars, filled bands) and "contour"; of the
layout `height`, `xaxis` and `yaxis` (type, range, tickvals, ticktext, title, visible),
`shapes` (lines) and `annotations`. Colours are names of roles, such as "@accent": on a
page they are the reader's own light or dark ones.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flatgauge.errors import FlatgaugeError
from flatgauge.report.formatting import finite, number, shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Figure = dict[str, Any]
WIDE, NARROW = 960, 380
"""Widths in pixels: for a screen, and for a phone."""
FONT = 13.0
ROLES = {
    "accent": "#1a5e8a",
    "warm": "#a84b08",
    "third": "#4f7a3a",
    "fourth": "#7a4f8f",
    "muted": "#5b646d",
    "bad": "#b3202e",
    "ink": "#1c2126",
    "line": "#dcdfe0",
}
"""The light colours of style.css, which stand for the reader's own on a page."""
MARKERS = {
    "circle": "o",
    "circle-open": "o",
    "x": "x",
    "line-ns-open": "|",
    "cross-thin-open": "+",
    "diamond": "D",
    "square": "s",
    "star": "*",
}
BAND = 0.18
SETTINGS: dict[Any, Any] = {
    "text.parse_math": False,
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": FONT,
    "axes.unicode_minus": True,
}


def svg(figure: Figure, name: str, width: int = WIDE, themed: bool = True) -> str:
    """The figure as an SVG element.

    Args:
        figure: see above.
        name: of the figure, for the names inside it.
        width: in pixels.
        themed: with the colours of the page that it is put in; else with light ones.
    """
    text = io.StringIO()
    with _drawn(figure, width, name) as canvas:
        canvas.savefig(text, format="svg", transparent=themed, metadata={"Date": None})
    found = text.getvalue()
    found = found[found.index("<svg") :]
    found = re.sub(r"<metadata>.*?</metadata>", "", found, flags=re.DOTALL)
    if not themed:
        return found
    for role, color in ROLES.items():
        found = found.replace(color, f"var(--{role})")
    found = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font: \1px var(--sans)", found)
    return re.sub(
        r'<svg ([^>]*?)width="[^"]*" height="[^"]*"', r"<svg \1", found, count=1
    )


def png(figure: Figure, name: str, width: int = WIDE) -> bytes:
    """The figure as pixels, twice as many as on a screen."""
    data = io.BytesIO()
    with _drawn(figure, width, name) as canvas:
        canvas.savefig(data, format="png", dpi=144, facecolor="white")
    return data.getvalue()


@contextmanager
def _drawn(figure: Figure, width: int, name: str) -> Iterator[Canvas]:
    try:
        import matplotlib
        from matplotlib.figure import Figure as Canvas
    except ImportError as error:
        raise FlatgaugeError(
            "figures need matplotlib: pip install matplotlib."
        ) from error
    layout = figure["layout"]
    size = (width / 72, layout.get("height", 380) / 72)
    settings = {**SETTINGS, "svg.hashsalt": f"{name}-{width}"}
    with matplotlib.rc_context(settings), warnings.catch_warnings():
        # Of letters that its own fonts do not have; the reader's may.
        warnings.simplefilter("ignore")
        canvas = Canvas(figsize=size, layout="constrained")
        axes = canvas.add_subplot()
        _axes(axes, layout, width)
        for trace in figure["data"]:
            (_contour if trace["type"] == "contour" else _scatter)(axes, trace, width)
        _decorate(axes, figure, width)
        yield canvas


def _axes(axes: Axes, layout: Mapping[str, Any], width: int) -> None:
    """Scales, ranges, ticks and titles."""
    for which in ("x", "y"):
        own = layout.get(f"{which}axis", {})
        log = own.get("type") == "log"
        axis = getattr(axes, f"{which}axis")
        if log:
            getattr(axes, f"set_{which}scale")("log")
        axis.set_major_formatter(_tick)
        axis.set_minor_formatter("")
        if "range" in own:
            ends = [10**end for end in own["range"]] if log else own["range"]
            getattr(axes, f"set_{which}lim")(*ends)
        if "tickvals" in own:
            axis.set_ticks(own["tickvals"], own.get("ticktext"))
            axis.set_ticks([], minor=True)
        elif not log:
            axis.get_major_locator().set_params(nbins=5 if width < WIDE else 9)
        title = own.get("title", {}).get("text")
        if title:
            axis.set_label_text(title, color=ROLES["muted"])
        axis.set_visible(own.get("visible", True))
    axes.grid(color=ROLES["line"], linewidth=0.8)
    axes.tick_params(color=ROLES["line"], labelcolor=ROLES["ink"], which="both")
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_color(ROLES["line"])
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


def _tick(value: float, place: int = 0) -> str:
    if value > 0 and (value >= 1e5 or value < 1e-4):
        return number(float(value), 1).replace("1 × 10", "10")
    return f"{value:.3g}".replace("-", "−")


def _color(value: str | None) -> str:
    """A role's colour, or one of its own; the band is a role with an alpha of its own."""
    if value and value.startswith("#"):
        return value
    return ROLES.get((value or "@accent").removeprefix("@"), ROLES["accent"])


def _gaps(values: list[Any]) -> list[float]:
    return [float(one) if finite(one) else float("nan") for one in values]


def _scatter(axes: Axes, trace: Mapping[str, Any], width: int) -> None:
    x, y = _gaps(trace["x"]), _gaps(trace["y"])
    label = trace.get("name") if trace.get("showlegend", True) else None
    # Matplotlib leaves names out that begin so.
    label = f" {label}" if label and label.startswith("_") else label
    if trace.get("fill") == "toself":
        axes.fill(x, y, color=ROLES["accent"], alpha=BAND, linewidth=0, label=label)
        return
    line, marker = trace.get("line", {}), trace.get("marker", {})
    mode = trace.get("mode", "lines")
    color = _color(line.get("color") or marker.get("color"))
    symbol = marker.get("symbol", "circle") if "markers" in mode else None
    bars = {which: trace.get(f"error_{which}", {}).get("array") for which in ("x", "y")}
    if any(bars.values()):
        across, along = ([one or 0.0 for one in found or ()] for found in bars.values())
        axes.errorbar(
            x,
            y,
            xerr=across or None,
            yerr=along or None,
            fmt="none",
            ecolor=color,
            elinewidth=1.4,
        )
    axes.plot(
        x,
        y,
        color=color,
        label=label,
        linestyle={"dash": "--", "dot": ":"}.get(line.get("dash"), "-")
        if "lines" in mode
        else "none",
        linewidth=line.get("width", 2),
        marker=MARKERS.get(symbol, "o") if symbol else None,
        markersize=marker.get("size", 8),
        markerfacecolor="none" if symbol and symbol.endswith("open") else color,
        markeredgewidth=1.8,
    )


def _contour(axes: Axes, trace: Mapping[str, Any], width: int) -> None:
    """Filled contours of one colour, denser where the value is larger."""
    import numpy as np
    from matplotlib.colors import ListedColormap, to_rgb

    z = np.array([_gaps(row) for row in trace["z"]])
    levels = trace.get("levels") or np.linspace(
        np.nanmin(z), np.nanmax(z), trace.get("ncontours", 18)
    )
    shades = np.linspace(0.0, 0.92, len(levels))
    colors = ListedColormap([(*to_rgb(ROLES["accent"]), alpha) for alpha in shades])
    x, y = _gaps(trace["x"]), _gaps(trace["y"])
    masked = np.ma.masked_invalid(z)
    from matplotlib.colors import BoundaryNorm

    norm = BoundaryNorm(levels, colors.N, clip=True)
    filled = axes.contourf(x, y, masked, levels=levels, cmap=colors, norm=norm)
    axes.contour(x, y, masked, levels=levels, colors=ROLES["ink"], linewidths=0.5)
    shown = list(levels)[:: max(1, len(levels) // 8)]
    bar = axes.figure.colorbar(
        filled, ax=axes, format=_tick, ticks=shown, aspect=30, pad=0.02
    )
    bar.minorticks_off()
    bar.outline.set_visible(False)
    bar.ax.tick_params(color=ROLES["line"], labelcolor=ROLES["ink"])
    bar.set_label("loss", color=ROLES["muted"])
    axes.grid(visible=False)


def _decorate(axes: Axes, figure: Figure, width: int) -> None:
    """Lines across, labels inside, and the legend above."""
    layout, narrow = figure["layout"], width < WIDE
    for shape in layout.get("shapes", []):
        line = shape.get("line", {})
        axes.axvline(
            shape["x0"], color=_color(line.get("color")), linewidth=line.get("width", 1)
        )
    for note in layout.get("annotations", []):
        mixed = axes.get_yaxis_transform()
        transform = mixed if note.get("xref") == "paper" else axes.transData
        axes.text(
            note["x"],
            note["y"],
            shorten(note["text"], 26) if narrow else note["text"],
            transform=transform,
            color=_color(note.get("font", {}).get("color", "@muted")),
            fontsize=note.get("font", {}).get("size", 12) - 2 * narrow,
            ha=note.get("xanchor", "left"),
            va={"middle": "center"}.get(note.get("yanchor", "middle"), "center"),
        ).set_in_layout(False)
    handles, labels = axes.get_legend_handles_labels()
    if labels:
        axes.legend(
            handles,
            labels,
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            ncols=max(1, width // 220),
            frameon=False,
            labelcolor=ROLES["ink"],
            borderaxespad=0.2,
        )
