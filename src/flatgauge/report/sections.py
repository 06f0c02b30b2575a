"""What each section of the page says, from a report's plain data."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatgauge.report.audit_table import movements
from flatgauge.report.words import STATUS, number, shorten

Plain = Mapping[str, Any]
CONVERGENCE = (
    ("residual", "Residual"),
    ("gap", "Gap"),
    ("steps", "Steps"),
    ("probes", "Probes"),
    ("method", "Method"),
)


def subjects(report: Plain) -> dict[str, Plain]:
    """The reports on the page by name: those compared, or the one, under ""."""
    comparison = report["extras"].get("comparison")
    if not comparison:
        return {"": report}
    return {name: comparison["reports"][name] for name in comparison["names"]}


def catalogue(report: Plain) -> dict[str, dict[str, Any]]:
    """What is known about each measure on the page, by the string that asked for it."""
    known: dict[str, dict[str, Any]] = {}
    for one in [*subjects(report).values(), report]:
        described = one["extras"].get("measures", {})
        for request, found in one["measurements"].items():
            about = described.get(request, {})
            entry = known.setdefault(request, {"request": request})
            entry.update(
                title=_title(about.get("title"), request),
                named=bool(about.get("title")),
                formula=about.get("formula", ""),
                reference=about.get("reference", ""),
                flatter=about.get("flatter", ""),
                invariant_to=about.get("invariant_to"),
                options=_choices(request, found),
            )
    return known


def _title(title: str | None, request: str) -> str:
    """The measure's title, with the options that its request names."""
    _, bracket, options = request.rstrip("]").partition("[")
    return f"{title} ({options})" if title and bracket else title or request


def _value(found: Plain) -> str:
    if found["details"].get("bound") == "lower":
        return f"≥ {found['value']!r}"
    errors = [(found["uncertainty"], ""), (found.get("data_uncertainty"), " (data)")]
    shown = [f" ± {one:.2g}{label}" for one, label in errors if one is not None]
    return f"= {found['value']!r}" + "".join(shown)


def _choices(request: str, found: Plain) -> str:
    """The options in words; those in the request come first anyway."""
    return ", ".join(f"{key}={value}" for key, value in found["options"].items())


def verdict_table(report: Plain) -> dict[str, Any]:
    """The first table: a row for each measure, a value for each subject."""
    names = subjects(report)
    about = catalogue(report)
    moved = movements(report, on_purpose=True)
    compared = {
        row["measure"]: row
        for row in report["extras"].get("comparison", {}).get("rows", [])
    }
    rows = []
    for request, entry in about.items():
        values = [
            value_cell(one["measurements"][request])
            for one in names.values()
            if request in one["measurements"]
        ]
        row = compared.get(request, {})
        rows.append(
            {
                **entry,
                "values": values,
                "flatter_name": row.get("flatter"),
                "significant": row.get("significant", False),
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


def value_cell(found: Plain) -> dict[str, Any]:
    """A number with its uncertainty and its status."""
    text, tone, mark = STATUS[found["status"]]
    lower = found["details"].get("bound") == "lower"
    return {
        "value": ("≥ " if lower else "") + number(found["value"]),
        "exactly": "" if found["value"] is None else repr(found["value"]),
        "uncertainty": number(found["uncertainty"], 2)
        if found["uncertainty"] is not None and not lower
        else "",
        "data_uncertainty": ""
        if found["value"] is None or found.get("data_uncertainty") is None
        else number(found["data_uncertainty"], 2),
        "status": text,
        "tone": tone,
        "mark": mark,
        "message": found["message"],
    }


def convergence(report: Plain) -> dict[str, Any]:
    """How every number was reached."""
    names = subjects(report)
    rows = []
    for name, one in names.items():
        for request, found in one["measurements"].items():
            rows.append(
                {
                    "name": name,
                    "request": request,
                    **value_cell(found),
                    "parts": [
                        number(found["details"].get(key), 2) for key, _ in CONVERGENCE
                    ],
                    "products": number(found["cost"]["products"]),
                    "seconds": number(found["cost"]["seconds"], 2),
                }
            )
    used = [
        index
        for index in range(len(CONVERGENCE))
        if any(row["parts"][index] != "–" for row in rows)
    ]
    for row in rows:
        row["parts"] = [row["parts"][index] for index in used]
    return {
        "columns": [CONVERGENCE[index][1] for index in used],
        "named": len(names) > 1,
        "rows": rows,
    }


def provenance(report: Plain) -> str:
    """What was measured, in plain words to copy into a paper."""
    lines = []
    for name, one in subjects(report).items():
        facts = one["provenance"]
        head = f"{shorten(name, 80)}: " if name else ""
        lines += [
            f"{head}{facts['model']} with {facts['parameters']:,} parameters "
            f"(fingerprint {facts['fingerprint']}), {facts['loss']} "
            f"{facts['loss_value']:.6g} over {facts['samples']:,} samples in "
            f"{facts['batches']:,} batches, {facts['mode']} mode, {facts['dtype']} on "
            f"{facts['device']}, seed {facts['seed']}, derivatives "
            f"{facts.get('derivatives', 'as given')}. Measured with flatgauge "
            f"{facts['flatgauge']} (torch {facts['torch']}, Python {facts['python']}), "
            f"{facts['time']}.",
            *([f"  {plan['text']}"] if (plan := one["extras"].get("budget")) else []),
            *(
                f"  {request} {_value(found)}"
                + f" ({STATUS[found['status']][0]}"
                + (f"; {options}" if (options := _choices(request, found)) else "")
                + ")"
                for request, found in one["measurements"].items()
            ),
            "",
        ]
    return "\n".join(lines).rstrip()
