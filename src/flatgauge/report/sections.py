"""What each section of the page says, from a report's plain data."""

from __future__ import annotations

from typing import Any

from flatgauge.report.audit_table import movements
from flatgauge.report.formatting import number, shorten
from flatgauge.report.mathml import mathml
from flatgauge.results import Measurement, Plain, Report

CONVERGENCE = {
    "residual": "Residual",
    "gap": "Gap",
    "steps": "Steps",
    "probes": "Probes",
    "method": "Method",
}
"""The details that say how a number was reached, with their headings."""


def subjects(report: Plain) -> dict[str, Report]:
    """The reports on the page by name: those compared, or the one, under ""."""
    comparison = report["extras"].get("comparison")
    if not comparison:
        return {"": Report.from_dict(report)}
    return {
        name: Report.from_dict(comparison["reports"][name])
        for name in comparison["names"]
    }


def measured(report: Plain) -> list[tuple[str, str, Measurement]]:
    """Every number on the page, with its subject's name and its request."""
    return [
        (name, request, found)
        for name, one in subjects(report).items()
        for request, found in one.measurements.items()
    ]


def catalogue(report: Plain) -> dict[str, dict[str, Any]]:
    """What is known about each measure on the page, by the string that asked for it."""
    known: dict[str, dict[str, Any]] = {}
    for one in [*subjects(report).values(), Report.from_dict(report)]:
        described = one.extras.get("measures", {})
        for request, found in one.measurements.items():
            about = described.get(request, {})
            entry = known.setdefault(request, {"request": request})
            entry.update(
                title=_title(about.get("title"), request),
                named=bool(about.get("title")),
                formula=(formula := about.get("formula", "")),
                typeset=mathml(formula),
                reference=about.get("reference", ""),
                flatter=about.get("flatter", ""),
                logarithmic=about.get("logarithmic", False),
                invariant_to=about.get("invariant_to"),
                options=_choices(found),
            )
    return known


def _title(title: str | None, request: str) -> str:
    """The measure's title, with the options that its request names."""
    _, bracket, options = request.rstrip("]").partition("[")
    return f"{title} ({options})" if title and bracket else title or request


def _value(found: Measurement) -> str:
    """The number in full, with its errors."""
    if found.is_lower_bound:
        return f"≥ {found.value!r}"
    errors = [(found.uncertainty, ""), (found.data_uncertainty, " (data)")]
    shown = [f" ± {one:.2g}{label}" for one, label in errors if one is not None]
    return f"= {found.value!r}" + "".join(shown)


def _choices(found: Measurement) -> str:
    """The options as they are written in a request."""
    return ", ".join(f"{key}={value}" for key, value in found.options.items())


def verdict_table(report: Plain) -> dict[str, Any]:
    """The first table: a row for each measure, a value for each subject."""
    names, moved = subjects(report), movements(report)
    compared = {
        row["measure"]: row
        for row in report["extras"].get("comparison", {}).get("rows", [])
    }
    rows = []
    for request, entry in catalogue(report).items():
        values = [
            value_cell(one.measurements[request])
            for one in names.values()
            if request in one.measurements
        ]
        row = compared.get(request, {})
        rows.append(
            {
                **entry,
                "values": values,
                "flatter_name": row.get("flatter") if row.get("significant") else None,
                "untold": row.get("untold", ""),
                "moved": moved.get(request),
            }
        )
    accuracies = report["extras"].get("accuracies") if compared else None
    return {
        "names": [name for name in names if name],
        "rows": rows,
        "audited": bool(moved),
        "claims": not moved and any(row["invariant_to"] is not None for row in rows),
        "accuracies": [accuracies.get(name) for name in names] if accuracies else [],
    }


def value_cell(found: Measurement) -> dict[str, Any]:
    """A number with its uncertainty and its status."""
    status, error = found.status, found.two_sided
    data_error = None if found.value is None else found.data_uncertainty
    return {
        "value": ("≥ " if found.is_lower_bound else "") + number(found.value),
        "exactly": "" if found.value is None else repr(found.value),
        "uncertainty": "" if error is None else number(error, 2),
        "data_uncertainty": "" if data_error is None else number(data_error, 2),
        "status": status.word,
        "tone": status.tone,
        "mark": status.mark,
        "message": found.message,
    }


def convergence(report: Plain) -> dict[str, Any]:
    """How every number was reached."""
    every = measured(report)
    used = {
        key: title
        for key, title in CONVERGENCE.items()
        if any(found.details.get(key) is not None for _, _, found in every)
    }
    rows = [
        {
            "name": name,
            "request": request,
            **value_cell(found),
            "parts": [number(found.details.get(key), 2) for key in used],
            "products": number(found.cost.products),
            "seconds": number(found.cost.seconds, 2),
        }
        for name, request, found in every
    ]
    return {
        "columns": list(used.values()),
        "named": len(subjects(report)) > 1,
        "rows": rows,
    }


def provenance(report: Plain) -> str:
    """What was measured, in plain words to copy into a paper."""
    return "\n\n".join(_facts(name, one) for name, one in subjects(report).items())


def _facts(name: str, report: Report) -> str:
    facts = report.provenance
    head = f"{shorten(name, 80)}: " if name else ""
    batches = "1 batch" if facts.batches == 1 else f"{facts.batches:,} batches"
    lines = [
        f"{head}{facts.model} with {facts.parameters:,} parameters (fingerprint "
        f"{facts.fingerprint}), {facts.loss} {facts.loss_value:.6g} over "
        f"{facts.samples:,} samples in {batches}, {facts.mode} mode, {facts.dtype} "
        f"on {facts.device}, seed {facts.seed}, derivatives {facts.derivatives}. "
        f"Measured with flatgauge {facts.flatgauge} (torch {facts.torch}, Python "
        f"{facts.python}), {facts.time}."
    ]
    if "budget" in report.extras:
        lines.append(f"  {report.extras['budget']['text']}")
    for request, found in report.measurements.items():
        how = "; ".join(filter(None, [found.status.word, _choices(found)]))
        lines.append(f"  {request} {_value(found)} ({how})")
    return "\n".join(lines)
