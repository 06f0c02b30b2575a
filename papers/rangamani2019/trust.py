"""The page's sentences on how far Table 4's values can be trusted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from papers.rangamani2019.minima import MEASURES, Cell, Measure
from papers.rangamani2019.table4 import BOUNDS, SPECTRAL


def left_out(found: list[Cell]) -> str:
    """How many pairs were not used, measure by measure, and what the library said."""
    said = []
    for one in MEASURES:
        every = sum(len(cell.small) for cell in found if cell.has(one))
        count = sum(cell.compare(one).left_out for cell in found)
        if count:
            said.append(f"- {one.label}: {count} of {every} pairs. {_why(found, one)}")
    if not said:
        return "None was."
    return "Left out were:\n\n" + "\n".join(said)


def _why(found: list[Cell], measure: Measure) -> str:
    """What the library said about the first value that is not trusted."""
    for cell in found:
        for network in (*cell.small, *cell.large):
            message = network["measures"].get(measure.request, {}).get("message")
            if message:
                return f"For one of them the library says: {message.rstrip('.')}."
    return ""


def largest_error(found: list[Cell], requests: Sequence[str] = SPECTRAL) -> float:
    """The largest relative error bound of these measures."""
    errors = [
        measure["uncertainty"] / abs(measure["value"])
        for measure in _every(found, requests)
        if measure.get("uncertainty") and measure["value"]
    ]
    return max(errors, default=0.0)


def bounds(found: list[Cell]) -> str:
    """What the PAC-Bayes bounds say as bounds, and how exactly they are known."""
    values = [one["value"] for one in _every(found, BOUNDS)]
    if not values:
        return ""
    vacuous = sum(value is None or value >= 1 for value in values)
    return (
        f"Of the {len(values)} PAC-Bayes bounds {vacuous} are 1 or more, and say nothing "
        "as bounds on a share of errors; they are known to "
        f"{largest_error(found, BOUNDS):.2%} of their values, and smaller differences "
        "may be noise."
    )


def _every(found: list[Cell], requests: Sequence[str]) -> list[dict[str, Any]]:
    """These measures of all networks, where they were run."""
    return [
        network["measures"][request]
        for cell in found
        for network in (*cell.small, *cell.large)
        for request in requests
        if request in network["measures"]
    ]
