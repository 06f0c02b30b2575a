"""The plots of the page, as SVG files that do not change unless the numbers do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from benchmarks.curves import (
    Curve,
    diagonal_with_classes,
    memory_with_samples,
    switch,
    time_with_parameters,
    time_with_samples,
)

FOLDER = Path(__file__).parent / "figures"
MIB = 2**20
SIZE = (6.4, 4.0)
MARKERS = "osD^v<>p"


def draw_figures(found: dict[str, Any], device: str) -> dict[str, str]:
    """Write the plots that there are numbers for: file names and captions."""
    written = {}
    for name, draw in DRAWINGS.items():
        with mpl.rc_context({"svg.hashsalt": "flatgauge", "svg.fonttype": "none"}):
            figure = Figure(figsize=SIZE, layout="constrained")
            FigureCanvasSVG(figure)
            caption = draw(figure.add_subplot(), found)
            if caption is None:
                continue
            FOLDER.mkdir(exist_ok=True)
            file = f"{device}-{name}.svg"
            figure.savefig(FOLDER / file, format="svg", metadata={"Date": None})
        written[file] = caption
    return written


def _time_with_samples(axes: Axes, found: dict[str, Any]) -> str | None:
    curves = time_with_samples(found)
    if not curves:
        return None
    _plot(axes, curves, 1.0, "samples N", "seconds")
    _line_of_slope_1(axes, curves)
    return f"Time against the number of samples. Slopes: {_slopes(curves)}."


def _memory_with_samples(axes: Axes, found: dict[str, Any]) -> str | None:
    curves = memory_with_samples(found)
    if not curves:
        return None
    _plot(axes, curves, MIB, "samples N", "peak over the baseline, MiB")
    rises = "; ".join(f"{one.label} {one.rise:.2f}" for one in curves)
    return (
        "Peak memory against the number of samples. Last value in units of the "
        f"first: {rises}."
    )


def _time_with_parameters(axes: Axes, found: dict[str, Any]) -> str | None:
    curves = time_with_parameters(found)
    if not curves:
        return None
    _plot(axes, curves, 1.0, "parameters", "seconds")
    _line_of_slope_1(axes, curves)
    return (
        "Time against the number of parameters, five hidden layers of growing width. "
        f"Slopes: {_slopes(curves)}."
    )


def _diagonal_with_classes(axes: Axes, found: dict[str, Any]) -> str | None:
    curves = diagonal_with_classes(found)
    if not curves:
        return None
    _plot(axes, curves, 1.0, "classes K", "gradients")
    x = curves[0].x
    axes.plot(x, [2 / 3 * k for k in x], "--", color="gray", label="2/3 K")
    caption = f"The diagonal against the number of classes. Slopes: {_slopes(curves)}."
    between = switch(found)
    if between is not None:
        axes.axvspan(*between, color="gray", alpha=0.15, label="the default switches")
        caption += (
            f" By default the diagonal is exact up to K = {between[0]} here, and comes "
            f"from square-root probes at K = {between[1]}."
        )
    axes.legend(fontsize="small")
    return caption


def _plot(axes: Axes, curves: list[Curve], unit: float, across: str, up: str) -> None:
    for index, one in enumerate(curves):
        marker = MARKERS[index % len(MARKERS)]
        axes.loglog(one.x, [y / unit for y in one.y], marker=marker, label=one.label)
    ticks = sorted({x for one in curves for x in one.x})
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks])
    axes.xaxis.minorticks_off()
    axes.set_xlabel(across)
    axes.set_ylabel(up)
    axes.grid(True, alpha=0.3)
    axes.legend(fontsize="x-small")


def _line_of_slope_1(axes: Axes, curves: list[Curve]) -> None:
    lowest = min(curves, key=lambda one: one.y[0])
    x = lowest.x
    line = [0.7 * lowest.y[0] * value / x[0] for value in x]
    axes.plot(x, line, "--", color="gray", label="slope 1")
    axes.legend(fontsize="x-small")


def _slopes(curves: list[Curve]) -> str:
    return "; ".join(f"{one.label} {one.slope:.2f}" for one in curves)


DRAWINGS: dict[str, Callable[[Axes, dict[str, Any]], str | None]] = {
    "time-samples": _time_with_samples,
    "memory-samples": _memory_with_samples,
    "time-parameters": _time_with_parameters,
    "diagonal-classes": _diagonal_with_classes,
}
