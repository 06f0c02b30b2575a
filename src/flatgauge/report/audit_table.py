"""The audit as tables: what moved, what held, and what was claimed."""

from __future__ import annotations

from typing import Any

from flatgauge.report.formatting import factor, finite, number
from flatgauge.results import Plain
from flatgauge.vocabulary import RESCALINGS, Kind, Verdict, kind_label

SAME_FUNCTION = 1e-5
"""The change of the outputs that is still put down to rounding."""


def movements(report: Plain) -> dict[str, dict[str, Any]]:
    """How far each measure moved while the function stayed, by request.

    All rows count whose twins have the same outputs, those of the twin that was made
    sharper on purpose among them; `text` is the farthest move. `claimed` says whether a
    measure claims more than permutations, and every rescaling that was tried; `held` that
    no rescaling moved it, though `by`, something else, did; `tried` whether it was measured
    on the twin made on purpose.
    """
    audit = report["extras"].get("audit") or {}
    found: dict[str, dict[str, Any]] = {}
    for row in audit.get("rows", []):
        if not keeps_outputs(row, audit) or row["verdict"] == Verdict.NOT_JUDGED:
            continue
        best = found.setdefault(
            row["measure"],
            {
                "size": 0.0,
                "text": "",
                "by": "",
                "bad": False,
                "tried": False,
                "claims": set(),
                "free": set(),
            },
        )
        best["claims" if row["claimed"] else "free"].add(row["kind"])
        best["tried"] |= row.get("adversarial", False)
        if row["verdict"] in (Verdict.MOVES, Verdict.VIOLATED):
            best["bad"] |= row["verdict"] == Verdict.VIOLATED
            if spread(row) > best["size"]:
                best["size"], best["text"] = spread(row), shown_change(row)
                best["by"] = kind_label(
                    row["kind"], True, row.get("adversarial", False)
                )
    for best in found.values():
        best["moved"] = best["size"] > 0
        best["claimed"] = bool(best["claims"] - {Kind.PERMUTATION}) and not (
            best["free"] & set(RESCALINGS)
        )
        best["held"] = best["claimed"] and not best["bad"]
    return found


def shown_change(row: Plain) -> str:
    """How far a row's measure moved; files of before it was stored have factors alone."""
    if row.get("change") and not row["change"].startswith("×"):
        return row["change"].replace("-", "−").removeprefix("by ")
    size = spread(row)
    return factor(size) if finite(size) else "a change of sign"


def keeps_outputs(row: Plain, audit: Plain) -> bool:
    """Whether a row's symmetry changes the outputs by no more than rounding."""
    if row.get("adversarial"):
        change = (audit.get("sharpened") or {}).get("output_change", 0.0)
    else:
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
    place: dict[str, int] = {kind: index for index, kind in enumerate(Kind)}
    columns = sorted(
        {_column(row) for row in audit["rows"]},
        key=lambda column: (place.get(column[0], len(place)), not column[1], column[2]),
    )
    cells = {(row["measure"], *_column(row)): _audit_cell(row) for row in audit["rows"]}
    change = dict(audit.get("function_change", {}))
    twin = audit.get("sharpened") or {}
    for kind in RESCALINGS:
        change[kind_label(kind, True, adversarial=True)] = twin.get("output_change")
    return {
        "columns": [
            {
                "kind": kind,
                "label": (label := kind_label(kind, exact, adversarial)),
                "change": number(change.get(label), 2),
            }
            for kind, exact, adversarial in columns
        ],
        "rows": [
            {
                "measure": measure,
                "cells": [cells.get((measure, *key)) for key in columns],
            }
            for measure in dict.fromkeys(row["measure"] for row in audit["rows"])
        ],
        "sharpened": audit.get("sharpened"),
        "untried": audit.get("untried", ""),
        "left_out": audit.get("left_out", []),
    }


def _column(row: Plain) -> tuple[str, bool, bool]:
    return row["kind"], row["exact"], row.get("adversarial", False)


def _audit_cell(row: Plain) -> dict[str, Any]:
    texts = {
        Verdict.HOLDS: (row["text"].partition(";")[0], "good"),
        Verdict.MOVES: (shown_change(row), "warn"),
        Verdict.VIOLATED: ("violated", "bad"),
    }
    text, tone = texts.get(row["verdict"], (row["verdict"], "none"))
    return {"text": text, "tone": tone, "claimed": row["claimed"], "long": row["text"]}
