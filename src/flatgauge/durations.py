"""Times as people write them."""

from __future__ import annotations

import math
import re
from numbers import Real

from flatgauge.errors import OptionError

UNITS = {"h": 3600.0, "min": 60.0, "s": 1.0}
WRITTEN = re.compile(
    r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<min>\d+(?:\.\d+)?)m(?:in)?)?"
    r"(?:(?P<s>\d+(?:\.\d+)?)s?)?"
)


def budget_seconds(budget: float | int | str) -> float:
    """A budget in seconds.

    >>> budget_seconds("1h30min"), budget_seconds("90s"), budget_seconds(2.5)
    (5400.0, 90.0, 2.5)
    """
    seconds = math.nan
    if isinstance(budget, str):
        match = WRITTEN.fullmatch(budget.replace(" ", ""))
        if match is not None and match[0]:
            parts = match.groupdict(default="0")
            seconds = sum(UNITS[unit] * float(parts[unit]) for unit in UNITS)
    elif isinstance(budget, Real) and not isinstance(budget, bool):
        seconds = float(budget)
    if not seconds > 0:
        raise OptionError(
            f"budget= is {budget!r}: give seconds, or a time such as '90s', '5min' or "
            "'1h30min'."
        )
    return seconds


def time_shown(seconds: float) -> str:
    """Seconds for people.

    >>> time_shown(0.25), time_shown(75.0), time_shown(7260.0)
    ('0.2 s', '1 min 15 s', '2 h 1 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
