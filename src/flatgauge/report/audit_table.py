"""The audit as tables: what moved, what held, and what was claimed."""

from __future__ import annotations

from typing import Any

from flatgauge.report.formatting import factor, finite, number
from flatgauge.results import Plain
from flatgauge.vocabulary import RESCALINGS, Kind, Verdict, kind_label

SHARPENED = "hessian-spectral-norm"
"""The measure that the sharpened twin is built against."""
SAME_FUNCTION = 1e-5
"""The change of the outputs that is still put down to rounding."""


def movements(report: Plain, on_purpose: bool = False) -> dict[str, dict[str, Any]]:
    """How far each measure moved while the function stayed, by request.

    `claimed` says whether a measure claims more than permutations, and every rescaling
    that was tried. With `on_purpose` the sharpened twin counts too: for the measure that
    it was built against, and for those that were seen to move elsewhere.
    """
    audit = report["extras"].get("audit") or {}
    found: dict[str, dict[str, Any]] = {}
    for row in audit.get("rows", []):
        if not keeps_outputs(row, audit) or row["verdict"] == Verdict.NOT_JUDGED:
            continue
        best = found.setdefault(
            row["measure"], {"size": 0.0, "bad": False, "claims": set(), "free": set()}
        )
        best["claims" if row["claimed"] else "free"].add(row["kind"])
        if row["verdict"] in (Verdict.MOVES, Verdict.VIOLATED):
            best["size"] = max(best["size"], spread(row))
            best["bad"] |= row["verdict"] == Verdict.VIOLATED
    sharpened = audit.get("sharpened")
    if on_purpose and sharpened:
        ratios = {**sharpened.get("ratios", {}), SHARPENED: sharpened["ratio"]}
        for request, best in found.items():
            ratio = ratios.get(request) or 0.0
            known = request == SHARPENED or best["size"] > 0
            if known and ratio > 0:
                best["size"] = max(best["size"], ratio, 1 / ratio)
    for best in found.values():
        best["moved"] = best["size"] > 0
        best["claimed"] = bool(best["claims"] - {Kind.PERMUTATION}) and not (
            best["free"] & set(RESCALINGS)
        )
        best["text"] = factor(best["size"]) if finite(best["size"]) else "sign changed"
    return found


def keeps_outputs(row: Plain, audit: Plain) -> bool:
    """Whether a row's symmetry changes the outputs by no more than rounding."""
    change = audit.get("function_change", {}).get(row["kind"], 0.0)
    return row["exact"] and change <= SAME_FUNCTION


def spread(row: Plain) -> float:
    """The largest factor by which a ratio is away from 1, infinite if it has none."""
    low, high = row["ratio_min"], row["ratio_max"]
    if not finite(low) or not finite(high) or low <= 0 or high <= 0:
        return float("inf")
    return max(high, 1 / low)


def audit_matrix(report: Plain) -> dict[str, Any] | None:
    """Verdicts with a row for each measure and a column for each kind of symmetry."""
    audit = report["extras"].get("audit")
    if not audit:
        return None
    place = {kind: index for index, kind in enumerate(Kind)}
    columns = sorted(
        {(row["kind"], row["exact"]) for row in audit["rows"]},
        key=lambda column: (place.get(column[0], len(place)), not column[1]),
    )
    cells = {
        (row["measure"], row["kind"], row["exact"]): _audit_cell(row)
        for row in audit["rows"]
    }
    change = audit.get("function_change", {})
    return {
        "columns": [
            {
                "kind": kind,
                "label": (label := kind_label(kind, exact)),
                "change": number(change.get(label), 2),
            }
            for kind, exact in columns
        ],
        "rows": [
            {
                "measure": measure,
                "cells": [cells.get((measure, *key)) for key in columns],
            }
            for measure in dict.fromkeys(row["measure"] for row in audit["rows"])
        ],
        "sharpened": audit.get("sharpened"),
    }


def _audit_cell(row: Plain) -> dict[str, Any]:
    size = spread(row)
    texts = {
        Verdict.HOLDS: (row["text"].partition(";")[0], "good"),
        Verdict.MOVES: (factor(size) if finite(size) else "changes sign", "warn"),
        Verdict.VIOLATED: ("violated", "bad"),
    }
    text, tone = texts.get(row["verdict"], (row["verdict"], "none"))
    return {"text": text, "tone": tone, "claimed": row["claimed"], "long": row["text"]}
