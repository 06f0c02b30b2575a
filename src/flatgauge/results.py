"""Results as plain data: a number with its status, uncertainty, cost and provenance.

Nothing here holds a tensor, so that a result can be stored, sent and drawn again
without torch's help.
"""

from __future__ import annotations

from enum import Enum


class Status(Enum):
    """How far a number can be trusted; the text says what to do about it."""

    EXACT = "Computed exactly, up to rounding."
    CONVERGED = "Converged to the requested tolerance."
    ESTIMATED = "A random estimate that met its target; quote it with its uncertainty."
    NOT_CONVERGED = (
        "Stopped before the tolerance was met: raise the number of steps or probes, "
        "or ask for less."
    )
    BIASED = (
        "A random estimate with a known bias that its uncertainty does not cover: "
        "compare such values only when they were computed alike."
    )
    NOT_APPLICABLE = "Not defined for this model, loss or data."

    @property
    def trusted(self) -> bool:
        """Whether the value can be quoted as it stands, with its uncertainty."""
        return self in (Status.EXACT, Status.CONVERGED, Status.ESTIMATED)
