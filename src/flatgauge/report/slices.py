"""Figures of the loss on lines and planes, and surfaces that can be turned."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

from flatgauge.report.formatting import finite, plot_text
from flatgauge.report.ratios import SERIES, Figure
from flatgauge.results import Plain

WIDE = 1e3
"""Curves whose losses differ by more have a log axis."""
DEEP = 10.0
"""Planes whose losses differ by more have contours at equal factors."""
CONTOURS = 16
DASHES = ("solid", "dash", "dot")


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
    return {
        "data": [
            {
                "type": "scatter",
                "mode": "lines",
                "name": plot_text(one["title"], 40),
                "x": one["axes"][0],
                "y": one["losses"],
                "line": {
                    "color": SERIES[index % len(SERIES)],
                    "dash": DASHES[index // len(SERIES) % len(DASHES)],
                    "width": 2,
                },
            }
            for index, one in enumerate(group)
        ],
        "layout": {
            "height": 360,
            "xaxis": {"title": {"text": plot_text(first["labels"][0])}},
            "yaxis": {
                "title": {"text": "loss"},
                **({"type": "log"} if _ratio(every) > WIDE else {}),
            },
        },
    }


def _ratio(losses: Sequence[float]) -> float:
    """The largest over the smallest, 1 where that says nothing."""
    return max(losses) / min(losses) if losses and min(losses) > 0 else 1.0


def _plane(one: Plain) -> Figure:
    """Contours at equal factors where the basin is deep, and the path if there is one."""
    columns = [list(column) for column in zip(*one["losses"], strict=True)]
    every = [loss for column in columns for loss in column if finite(loss)]
    contours: Figure = {
        "type": "contour",
        "x": one["axes"][0],
        "y": one["axes"][1],
        "z": columns,
        "ncontours": CONTOURS,
    }
    if _ratio(every) > DEEP:
        low, high = log10(min(every)), log10(max(every))
        step = (high - low) / (CONTOURS - 1)
        contours["levels"] = [10 ** (low + step * place) for place in range(CONTOURS)]
        # Rounding must not leave out the ends.
        contours["levels"][0], contours["levels"][-1] = min(every), max(every)
    if len(set(every)) < 2:
        return {"data": [], "layout": {}}
    return {
        "data": [contours, *_marks(one)],
        "layout": {
            "height": 520,
            **{
                axis: {"title": {"text": plot_text(label)}}
                for axis, label in zip(("xaxis", "yaxis"), one["labels"], strict=True)
            },
        },
    }


def _marks(one: Plain) -> list[Figure]:
    """The path from its first checkpoint to its last, or the point itself."""
    path, names = one.get("path") or [], one.get("names") or []
    if not path:
        name = plot_text(names[0], 30) if names else ""
        return [_mark([[0.0, 0.0]], name, "cross-thin-open", "@ink", "markers")]
    ends = [_mark(path, "the checkpoints", "circle", "@warm", "lines+markers")]
    for place, symbol in ((0, "square"), (-1, "star")):
        name = plot_text(names[place], 30)
        ends.append(_mark([path[place]], name, symbol, "@bad", "markers"))
    return ends


def _mark(
    places: Sequence[Sequence[float]], name: str, symbol: str, color: str, mode: str
) -> Figure:
    return {
        "type": "scatter",
        "mode": mode,
        "name": name,
        "x": [place[0] for place in places],
        "y": [place[1] for place in places],
        "line": {"color": color, "width": 1.5},
        "marker": {
            "symbol": symbol,
            "size": 14 if mode == "markers" else 5,
            "color": color,
        },
        "showlegend": bool(name),
    }


def surfaces(landscapes: Sequence[Plain]) -> dict[str, Figure]:
    """Planes as heights between 0 and 1, by the name of their figure's place."""
    found = {}
    for index, group in enumerate(landscape_groups(landscapes)):
        one = group[0]
        if len(one["axes"]) != 2:
            continue
        every = [loss for row in one["losses"] for loss in row if finite(loss)]
        if len(set(every)) < 2:
            continue
        deep = _ratio(every) > DEEP
        low, high = (_scaled(end, deep) for end in (min(every), max(every)))
        found[f"landscape-{index}"] = {
            "heights": [
                [
                    round((_scaled(loss, deep) - low) / (high - low), 4)
                    if finite(loss)
                    else None
                    for loss in row
                ]
                for row in one["losses"]
            ],
            "logarithmic": deep,
            "path": _inside(one),
        }
    return found


def _scaled(loss: float, deep: bool) -> float:
    return log10(loss) if deep else loss


def _inside(one: Plain) -> list[list[float]]:
    """The path in units of the axes, from 0 to 1."""
    return [
        [
            round((place - axis[0]) / (axis[-1] - axis[0]), 4)
            for place, axis in zip(point, one["axes"], strict=True)
        ]
        for point in one.get("path") or []
    ]
