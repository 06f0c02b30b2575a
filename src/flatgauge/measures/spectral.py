"""Lanczos runs as parts of a measure's outcome."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatgauge.measures.registry import Outcome
from flatgauge.solvers.lanczos import Extremes


def extremes_outcome(
    found: Extremes, details: Mapping[str, Any] | None = None
) -> Outcome:
    """The largest eigenvalue, with the rest of the run in the details."""
    return Outcome(
        found.value,
        found.status,
        found.message,
        found.error_bound,
        {
            "smallest": found.smallest,
            "radius": found.radius,
            "residual": found.residual,
            "smallest_residual": found.smallest_residual,
            "smallest_error_bound": found.smallest_error_bound,
            "smallest_status": found.smallest_status.name,
            "steps": found.products,
            "layers": {
                name: float(part.double().square().sum())
                for name, part in found.vector.items()
            },
            **(details or {}),
        },
    )
