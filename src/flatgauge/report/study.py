"""The page of a study: which measure orders the networks best, ties and all numbers."""

from __future__ import annotations

from typing import Any

from flatgauge.report.formatting import number
from flatgauge.report.multiples import plain_values
from flatgauge.report.scatter import scatter, shaded_by, shades
from flatgauge.report.sections import catalogue
from flatgauge.results import Plain
from flatgauge.vocabulary import Association, Status


def study_content(report: Plain) -> dict[str, Any]:
    """Everything that the template prints."""
    study = report["extras"]["study"]
    known = catalogue(report)
    measures, statistics = study["measures"], study["statistics"]
    names = list(
        dict.fromkeys(
            name for one in measures for name in statistics[one]["statistics"]
        )
    )
    shown, absent = [], {}
    for name in names:
        every = [statistics[one]["statistics"].get(name) for one in measures]
        reasons = {one["message"] for one in every if one and one["value"] is None}
        if any(one and one["value"] is not None for one in every):
            shown.append(name)
        else:
            absent[name] = " ".join(sorted(reasons))
    order = shades(study)
    first = statistics[measures[0]]
    return {
        "facts": report["provenance"],
        "headline": study["verdict"],
        "plan": study["plan"],
        "count": len(study["networks"]),
        "level": 100 * first["level"],
        "resamples": first["resamples"],
        "names": shown,
        "absent": absent,
        "rows": [
            {
                **known[measure],
                "networks": statistics[measure]["networks"],
                "left_out": _left_out(study, measure),
                "cells": [_cell(study, measure, name) for name in shown],
            }
            for measure in measures
        ],
        "charts": [
            {**known[measure], "svg": drawn}
            for measure in measures
            if (drawn := scatter(study, measure, known[measure]["logarithmic"]))
        ],
        "shaded": {"column": shaded_by(study), "first": order[0], "last": order[-1]}
        if len(order) > 1
        else None,
        "columns": list(study["networks"][0]["row"]),
        "networks": [
            {
                "name": one["name"],
                "row": list(one["row"].values()),
                "cells": [plain_values(one["values"][m]) for m in measures],
            }
            for one in study["networks"]
        ],
        "measures": [known[measure] for measure in measures],
        "meanings": [(str(one), one.text) for one in Association],
        "failures": study["failures"],
        "catalogue": list(known.values()),
    }


def _cell(study: Plain, measure: str, name: str) -> dict[str, str]:
    """A statistic with its interval, its place, and what it does not say."""
    found = study["statistics"][measure]["statistics"].get(name)
    if found is None or found["value"] is None:
        reason = "" if found is None else found["message"]
        return {
            "value": "–",
            "interval": "",
            "place": "",
            "message": reason,
            "mark": "",
        }
    place = next(
        one
        for one in study["standings"]
        if one["column"] == measure and one["statistic"] == name
    )
    status = Status[found["status"]]
    interval = ""
    if found["low"] is not None:
        interval = f"[{number(found['low'], 3)}, {number(found['high'], 3)}]"
    return {
        "value": number(found["value"], 3),
        "interval": interval,
        "place": _place(place),
        "message": found["message"],
        "mark": "" if status.trusted else status.mark,
    }


def _place(place: Plain) -> str:
    """The place in words; where intervals overlap and it is behind all the same, that too."""
    behind = place["place"] > 1 and not place["tied"]
    note = ", though the intervals overlap" if behind and place["overlaps"] else ""
    return place["verdict"] + note


def _left_out(study: Plain, measure: str) -> dict[str, str]:
    """The names of the networks that do not count for a measure, by the reason."""
    names = [one["name"] for one in study["networks"]]
    return {
        reason: ", ".join(names[place] for place in places)
        for reason, places in study["statistics"][measure]["left_out"].items()
    }
