"""The page of a series: what happened from its first checkpoint to its last, and curves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flatgauge.measurements import Provenance
from flatgauge.report.formatting import finite, listed
from flatgauge.report.multiples import axis_name, multiple, plain_values, shade
from flatgauge.report.sections import catalogue
from flatgauge.results import Plain
from flatgauge.tables import checkpoints_in_words
from flatgauge.vocabulary import Kind, Status

# Differences beyond this many combined errors, and beyond rounding, count as real.
ERRORS = 2


def series_content(report: Plain) -> dict[str, Any]:
    """Everything that the template prints."""
    series = report["extras"]["series"]
    known = catalogue(report)
    points = series["points"]
    rounding = Provenance(**report["provenance"]).rounding
    return {
        "facts": report["provenance"],
        "headline": _headline(series),
        "sentences": [
            _sentence(series, run, list(known.values()), rounding)
            for run in series["runs"]
        ],
        "axis": axis_name(series),
        "ends": [_place(points[0]), _place(points[-1])],
        "runs": [
            {"name": run, "style": shade(series, run)}
            for run in series["runs"]
            if len(series["runs"]) > 1
        ],
        "charts": [
            {**known[request], "svg": drawn}
            for request in series["measures"]
            if (drawn := multiple(series, request, _is_logarithm(report, request)))
        ],
        "measures": [known[request] for request in series["measures"]],
        "rows": [
            {
                **point,
                "cells": [plain_values(point["values"][r]) for r in series["measures"]],
            }
            for point in points
        ],
        "failures": series["failures"],
        "catalogue": list(known.values()),
    }


def _is_logarithm(report: Plain, request: str) -> bool:
    about = report["extras"].get("measures", {}).get(request, {})
    return bool(about.get("logarithmic"))


def _headline(series: Plain) -> str:
    count = len(series["runs"])
    of = " of one run" if count < 2 else f" of {count} runs"
    return checkpoints_in_words([point["step"] for point in series["points"]], of)


def _place(point: Plain) -> str:
    return point["name"] if point["step"] is None else f"step {point['step']:,}"


def _sentence(series: Plain, run: str, known: Sequence[Plain], rounding: float) -> str:
    """Whether the last checkpoint of a run is flatter than the first, and by what."""
    own = [point for point in series["points"] if point["run"] == run]
    first, last = own[0], own[-1]
    invariant = [
        one for one in known if Kind.NODE_RESCALE in (one["invariant_to"] or [])
    ]
    whose = f"In run “{run}”, from" if run else "From"
    way = f"{whose} {_place(first)} to {_place(last)}"
    if not invariant:
        return (
            f"{way} there is no answer here: rescaling the nodes of the network changes "
            "each of these measures."
        )
    found: dict[str, list[str]] = {"flatter": [], "sharper": [], "alike": []}
    for one in invariant:
        direction = _direction(first, last, one, rounding)
        if direction is not None:
            found[direction].append(one["request"])
    if found["flatter"] and found["sharper"]:
        return (
            f"{way} the measures that rescaling nodes does not change disagree: flatter "
            f"by {listed(found['flatter'])}, sharper by {listed(found['sharper'])}."
        )
    for direction in ("flatter", "sharper"):
        if found[direction]:
            return (
                f"{way} the network became {direction}, by {listed(found[direction])}, "
                "which rescaling its nodes does not change."
            )
    return (
        f"{way} no measure that rescaling nodes leaves as it is changed by more than its "
        "error."
    )


def _direction(
    first: Plain, last: Plain, measure: Plain, rounding: float
) -> str | None:
    """What one measure says; None where it has no number that can be trusted."""
    ends = [point["values"][measure["request"]] for point in (first, last)]
    if not all(finite(e["value"]) and Status[e["status"]].trusted for e in ends):
        return None
    before, after = (end["value"] for end in ends)
    error = sum((end["uncertainty"] or 0.0) ** 2 for end in ends) ** 0.5
    least = max(ERRORS * error, rounding * max(abs(before), abs(after)))
    if abs(after - before) <= least:
        return "alike"
    return (
        "flatter"
        if (after < before) == (measure["flatter"] == "smaller")
        else "sharper"
    )
