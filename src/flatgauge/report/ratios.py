"""Figures of ratios on a log axis: the audit, and checkpoints side by side."""

from __future__ import annotations

from collections.abc import Sequence
from math import log10
from typing import Any

from flatgauge.report.audit_table import keeps_outputs, spread
from flatgauge.report.formatting import factor, finite, number, plot_text
from flatgauge.results import Plain
from flatgauge.vocabulary import Verdict, kind_label

Figure = dict[str, Any]
SERIES = ("@accent", "@warm", "@third", "@fourth", "@muted")
"""The colours of curves and checkpoints, in order."""
ROW = 54
"""Pixels for one measure."""


def audit_figure(audit: Plain) -> Figure:
    """Ratios on a log axis: claims sit on 1, the others are free to move.

    Only symmetries that leave the outputs as they are: elsewhere a measure may move.
    """
    rows = [row for row in audit["rows"] if keeps_outputs(row, audit)]
    measures = list(dict.fromkeys(row["measure"] for row in rows))
    styles = {
        "claimed": ("claimed invariant", "circle", "@accent"),
        "free": ("not claimed", "circle-open", "@warm"),
        "violated": ("claim violated", "x", "@bad"),
    }
    traces = {key: _segments(*style) for key, style in styles.items()}
    reach = 2.0
    for place, measure in enumerate(measures):
        own = [row for row in rows if row["measure"] == measure and _drawable(row)]
        for index, row in enumerate(own):
            group = "claimed" if row["claimed"] else "free"
            group = "violated" if row["verdict"] == Verdict.VIOLATED else group
            height = len(measures) - place - 0.22 - 0.55 * (index + 0.5) / len(own)
            low, high = row["ratio_min"], row["ratio_max"]
            kind = kind_label(row["kind"], row["exact"], row.get("adversarial", False))
            ends = f"{factor(low)} to {factor(high)}"
            note = f"{plot_text(measure)}<br>{plot_text(kind)}: {ends}"
            trace = traces[group]
            trace["x"] += [low, high, None]
            trace["y"] += [height, height, None]
            trace["text"] += [note, note, ""]
            reach = max(reach, spread(row))
    at_one = {"type": "line", "xref": "x", "yref": "paper", "x0": 1, "x1": 1} | {
        "y0": 0,
        "y1": 1,
        "line": {"color": "@ink", "width": 1},
    }
    return {
        "data": [trace for trace in traces.values() if trace["x"]],
        "layout": _layout(measures, reach, "value after / value before")
        | {"shapes": [at_one]},
    }


def _layout(measures: Sequence[str], reach: float, title: str) -> Figure:
    """A row for each measure over a log axis that ends at 1 / reach and reach."""
    return {
        "height": 90 + ROW * len(measures),
        "annotations": _row_labels(measures),
        "xaxis": {**_log_axis(reach), "title": {"text": title}},
        "yaxis": {"visible": False, "range": [-0.1, len(measures) + 0.25]},
        "margin": {"l": 12, "r": 12},
    }


def _segments(name: str, symbol: str, color: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [],
        "y": [],
        "text": [],
        "hovertemplate": "%{text}<extra></extra>",
        "line": {"color": color, "width": 2},
        "marker": {"color": color, "symbol": symbol, "size": 8, "line": {"width": 2}},
    }


def _drawable(row: Plain) -> bool:
    low, high = row["ratio_min"], row["ratio_max"]
    return finite(low) and finite(high) and low > 0


def _row_labels(measures: Sequence[str]) -> list[Figure]:
    """Labels above their rows, so that a phone needs no margin for them."""
    return [
        {
            "x": 0,
            "xref": "paper",
            "xanchor": "left",
            "y": len(measures) - place + 0.02,
            "yanchor": "middle",
            "text": plot_text(measure, 44),
            "showarrow": False,
            "font": {"size": 12, "color": "@muted"},
        }
        for place, measure in enumerate(measures)
    ]


def _log_axis(reach: float) -> Figure:
    """A log axis from 1 / reach to reach, with few and plain ticks."""
    end = min(log10(reach) * 1.08, 300.0)
    if end > 1.2:
        step = max(1, round(end / 3))
        powers = range(-step * int(end / step), int(end) + 1, step)
        ticks = [10.0**power for power in powers]
    else:
        ticks = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0]
    return {
        "type": "log",
        "range": [-end, end],
        "tickvals": ticks,
        "ticktext": [f"{tick:g}" for tick in ticks],
    }


def comparison_figure(comparison: Plain) -> Figure:
    """Each checkpoint's value over the first one's, with error bars."""
    names = comparison["names"]
    rows = [row for row in comparison["rows"] if _comparable(row, names)]
    data = []
    reach = 1.5
    for index, name in enumerate(names):
        ratios = [row["values"][name] / row["values"][names[0]] for row in rows]
        errors = [
            (row["uncertainties"][name] or 0.0) / abs(row["values"][names[0]])
            for row in rows
        ]
        reach = max([reach, *(max(ratio, 1 / ratio) for ratio in ratios)])
        color = SERIES[index % len(SERIES)]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plot_text(name, 30),
                "x": ratios,
                "y": [len(rows) - place - 0.45 for place in range(len(rows))],
                "error_x": {"type": "data", "array": errors, "color": color},
                "text": [
                    f"{plot_text(row['measure'])}<br>{plot_text(name, 30)}: "
                    f"{number(row['values'][name])}"
                    for row in rows
                ],
                "hovertemplate": "%{text}<extra></extra>",
                "marker": {"color": color, "size": 10},
            }
        )
    title = f"value / value of {plot_text(names[0], 30)}"
    labels = [row["measure"] for row in rows]
    return {"data": data if rows else [], "layout": _layout(labels, reach, title)}


def _comparable(row: Plain, names: Sequence[str]) -> bool:
    values = [row["values"][name] for name in names]
    return all(finite(value) and value > 0 for value in values)
