"""What all statistics have in common: numbers for many weightings of the same networks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flatgauge.rankings.columns import Array

Weighted = Callable[[Array], Array]
"""From weights [resamples, networks] to a value for each resample, nan where none is defined.

A weight says how often a network was drawn; a pair of networks counts the product of
theirs. A network is never compared with itself, however often it was drawn.
"""


@dataclass(frozen=True)
class Prepared:
    """A statistic of a design, or why the design cannot identify it.

    Attributes:
        of: the values for given weights; None where it does not apply.
        reason: why it does not apply.
        bias: what its interval does not cover.
        details: what it was made of.
    """

    of: Weighted | None = None
    reason: str = ""
    bias: str = ""
    details: dict[str, Any] = field(default_factory=dict)


def quadratic(weights: Array, matrix: Array) -> Array:
    """Σ_ij w_i M_ij w_j for every row w of the weights."""
    return ((weights @ matrix) * weights).sum(1)
