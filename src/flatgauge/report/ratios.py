"""Figures of ratios on a log axis: the audit, and checkpoints side by side."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, log10
from typing import Any, NamedTuple

from flatgauge.report.audit_table import keeps_outputs, shown_change
from flatgauge.report.formatting import finite, plot_text
from flatgauge.results import Plain
from flatgauge.vocabulary import Verdict, kind_label

Figure = dict[str, Any]
SERIES = ("@accent", "@warm", "@third", "@fourth", "@muted")
"""The colours of curves and checkpoints, in order."""
SYMBOLS = ("circle", "square", "diamond", "star", "x")
"""Their shapes, which change where the colours begin anew."""
ROW, LINE = 54, 19
"""Pixels for one measure, and for one line of the audit."""
LETTERS = 58
"""The longest label."""
LABELS = 1.25
"""The room for labels beside the audit's lines, as a share of the axis."""


class _Line(NamedTuple):
    """The range of a measure's ratios, and what they are of."""

    low: float
    high: float
    group: str
    label: str


def audit_figure(audit: Plain) -> Figure:
    """Ratios on a log axis: claims sit on 1, the others are free to move.

    Only symmetries that leave the outputs as they are: elsewhere a measure may move.
    Every line is labelled with the kinds of symmetry that it is of.
    """
    rows = [row for row in audit["rows"] if keeps_outputs(row, audit)]
    found = {
        measure: _lines([row for row in rows if row["measure"] == measure])
        for measure in dict.fromkeys(row["measure"] for row in rows)
    }
    styles = {
        "claimed": ("claimed, and it held", "circle", "@accent"),
        "free": ("not claimed", "circle-open", "@warm"),
        "violated": ("claim violated", "x", "@bad"),
    }
    traces = {key: _segments(*style) for key, style in styles.items()}
    every = [line for lines in found.values() for line in lines]
    reach = max([2.0, *(max(line.high, 1 / line.low) for line in every)])
    axis = _log_axis(reach)
    end = axis["range"][1]
    # Logarithms on a plain axis: the room for labels may be beyond all numbers.
    ticks = [log10(tick) for tick in axis["tickvals"]]
    notes, height = [], 0.0
    for measure, lines in found.items():
        height -= 1.2
        notes.append(_note(measure, 0.0, height, "paper", "@ink"))
        for line in lines:
            height -= 1.0
            trace = traces[line.group]
            trace["x"] += [log10(line.low), log10(line.high), None]
            trace["y"] += [height, height, None]
            notes.append(_note(line.label, 1.06 * end, height, "x", "@muted"))
    return {
        "data": [trace for trace in traces.values() if trace["x"]],
        "layout": {
            "height": 110 + int(-LINE * height),
            "annotations": notes,
            "shapes": [{"x0": 0, "line": {"color": "@ink", "width": 1}}],
            "xaxis": {
                "tickvals": ticks,
                "ticktext": axis["ticktext"],
                "range": [-end, end * (1 + 2 * LABELS)],
                "title": {"text": "value after / value before"},
            },
            "yaxis": {"visible": False, "range": [height - 1, 0]},
        },
    }


def _lines(rows: Sequence[Plain]) -> list[_Line]:
    """One line for what held, one for what stayed, and one for each kind that moved."""
    drawn = [row for row in rows if _drawable(row)]
    found = []
    for verdict, group, words in (
        (Verdict.HOLDS, "claimed", "{}"),
        (Verdict.STAYS, "free", "no move: {}"),
    ):
        own = [row for row in drawn if row["verdict"] == verdict]
        if own:
            low = min(row["ratio_min"] for row in own)
            high = max(row["ratio_max"] for row in own)
            label = words.format(_kinds(own, LETTERS - len(words)))
            found.append(_Line(low, high, group, label))
    for row in drawn:
        if row["verdict"] in (Verdict.MOVES, Verdict.VIOLATED):
            bad = row["verdict"] == Verdict.VIOLATED
            label = f"{_kind(row)} {shown_change(row)}"
            ends = row["ratio_min"], row["ratio_max"]
            found.append(_Line(*ends, "violated" if bad else "free", label))
    return found


def _kinds(rows: Sequence[Plain], room: int) -> str:
    """As many as there is room for, and how many more there are."""
    names = list(dict.fromkeys(map(_kind, rows)))
    label, more = ", ".join(names), 0
    while len(label) > room and more < len(names) - 1:
        more += 1
        label = f"{', '.join(names[:-more])} and {more} more"
    return label


def _kind(row: Plain) -> str:
    return kind_label(row["kind"], row["exact"], row.get("adversarial", False))


def _note(text: str, x: float, y: float, reference: str, color: str) -> Figure:
    return {
        "x": x,
        "y": y,
        "xref": reference,
        "text": plot_text(text, LETTERS),
        "font": {"size": 12, "color": color},
    }


def _segments(name: str, symbol: str, color: str) -> Figure:
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "name": name,
        "x": [],
        "y": [],
        "line": {"color": color, "width": 2},
        "marker": {"color": color, "symbol": symbol, "size": 7},
    }


def _drawable(row: Plain) -> bool:
    low, high = row["ratio_min"], row["ratio_max"]
    return finite(low) and finite(high) and low > 0


def _log_axis(reach: float) -> Figure:
    """A log axis from 1 / reach to reach, with few and plain ticks."""
    end = min(log10(reach) * 1.08, 300.0)
    if end > 1.2:
        step = max(1, round(end / 3))
        powers = range(-step * int(end / step), int(end) + 1, step)
        ticks = [10.0**power for power in powers]
    else:
        ticks = [
            t for t in (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0) if 10**-end <= t <= 10**end
        ]
    return {
        "type": "log",
        "range": [-end, end],
        "tickvals": ticks,
        "ticktext": [f"{tick:g}" for tick in ticks],
    }


def comparison_figure(comparison: Plain) -> Figure:
    """Each checkpoint's value over the first one's, with error bars."""
    names = comparison["names"]
    logarithms = _logarithms(comparison)
    rows = [row for row in comparison["rows"] if _comparable(row, names, logarithms)]
    data = []
    reach = 1.5
    for index, name in enumerate(names):
        ratios, errors = [], []
        for row in rows:
            value, first = row["values"][name], row["values"][names[0]]
            error = row["uncertainties"][name] or 0.0
            if row["measure"] in logarithms:
                ratios.append(exp(value - first))
                errors.append(ratios[-1] * error)
            else:
                ratios.append(value / first)
                errors.append(error / abs(first))
        reach = max([reach, *(max(ratio, 1 / ratio) for ratio in ratios)])
        color = SERIES[index % len(SERIES)]
        symbol = SYMBOLS[index // len(SERIES) % len(SYMBOLS)]
        data.append(
            {
                "type": "scatter",
                "mode": "markers",
                "name": plot_text(name, 30),
                "x": ratios,
                "y": [len(rows) - place - 0.5 for place in range(len(rows))],
                "error_x": {"array": errors, "color": color},
                "marker": {"color": color, "symbol": symbol, "size": 9},
            }
        )
    labels = [
        {
            "x": 0,
            "xref": "paper",
            "y": len(rows) - place - 0.12,
            "text": plot_text(row["measure"], 44),
            "font": {"size": 12, "color": "@muted"},
        }
        for place, row in enumerate(rows)
    ]
    return {
        "data": data if rows else [],
        "layout": {
            "height": 100 + ROW * len(rows),
            "annotations": labels,
            "xaxis": {
                **_log_axis(reach),
                "title": {"text": f"value / value of {plot_text(names[0], 30)}"},
            },
            "yaxis": {"visible": False, "range": [-0.1, len(rows) + 0.25]},
        },
    }


def _logarithms(comparison: Plain) -> set[str]:
    """The measures that are logarithms, of which differences count."""
    first = comparison.get("reports", {}).get(comparison["names"][0], {})
    measures = first.get("extras", {}).get("measures", {})
    return {name for name, one in measures.items() if one.get("logarithmic")}


def _comparable(row: Plain, names: Sequence[str], logarithms: set[str]) -> bool:
    values = [row["values"][name] for name in names]
    log = row["measure"] in logarithms
    return all(finite(value) and (value > 0 or log) for value in values)
