"""Numbers that are bounds, and what tells two numbers apart."""

from __future__ import annotations

from flatgauge.results import Measurement


def is_lower_bound(one: Measurement) -> bool:
    """Whether the truth may be larger than the number, by what nobody knows."""
    return one.details.get("bound") == "lower"


def error_bar(one: Measurement) -> float:
    """What a number can be off by, when it is compared with another of its kind.

    That is its uncertainty; for a lower bound, whose uncertainty is rounding alone, also
    how far apart the searches for it ended.
    """
    spread = one.details["bound_spread"] if is_lower_bound(one) else 0.0
    return max(one.uncertainty or 0.0, spread)
