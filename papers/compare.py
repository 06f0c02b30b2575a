"""Whether a stored result is still what the code gives, on whatever processor."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from papers.experiment import Context, Run, Tolerance
from papers.page import number

# Runs that took at most so long are made again each time the papers are checked.
CHEAP_SECONDS = 20.0
MISSING = "nothing"
Tolerances = Mapping[str, Tolerance | None]


@dataclass(frozen=True)
class Difference:
    """One place of a result where the stored value and today's do not agree."""

    key: str
    stored: Any
    today: Any


def left_out(
    run: Run, record: dict[str, Any], context: Context, limit: float = CHEAP_SECONDS
) -> str:
    """Why a stored result is not compared; empty if it is."""
    device, seconds = record["provenance"]["device"], record["times"]["seconds"]
    if not run.repeats:
        return "another processor gives another result"
    if device != "cpu":
        return f"it was made on {device}"
    if seconds > limit:
        return f"it took {seconds:.0f} s, more than {limit:.0f} s"
    if "data" in run.needs and context.data is None:
        return "it needs --data"
    return ""


def differences(stored: Any, today: Any, tolerances: Tolerances) -> list[Difference]:
    """Where two results differ by more than the tolerances; both as plain JSON data.

    Numbers agree within a tolerance, all else must be equal.

    >>> differences({"norms": [1.0, 2.0]}, {"norms": [1.0, 2.1]}, {})
    [Difference(key='norms[1]', stored=2.0, today=2.1)]
    """
    return list(_differences("", stored, today, Tolerance(), tolerances))


def sentence(found: list[Difference]) -> str:
    """The first difference, how many more there are, and what to do."""
    first, *more = found
    others = f" ({len(more)} more differ)" if more else ""
    return (
        f"{first.key} is stored as {number(first.stored, 10)}, but today's code gives "
        f"{number(first.today, 10)}{others}: mend the code, or raise the run's revision "
        "and make it again."
    )


def _differences(
    key: str, stored: Any, today: Any, tolerance: Tolerance, tolerances: Tolerances
) -> Iterator[Difference]:
    if isinstance(stored, dict) and isinstance(today, dict):
        for name in sorted(stored.keys() | today.keys()):
            own = tolerances.get(name, tolerance)
            if own is not None:
                pair = stored.get(name, MISSING), today.get(name, MISSING)
                where = f"{key}.{name}" if key else name
                yield from _differences(where, *pair, own, tolerances)
    elif isinstance(stored, list) and isinstance(today, list):
        pairs = itertools.zip_longest(stored, today, fillvalue=MISSING)
        for index, pair in enumerate(pairs):
            yield from _differences(f"{key}[{index}]", *pair, tolerance, tolerances)
    elif not _agree(stored, today, tolerance):
        yield Difference(key, stored, today)


def _agree(stored: Any, today: Any, tolerance: Tolerance) -> bool:
    if _is_number(stored) and _is_number(today):
        allowed = tolerance.absolute + tolerance.relative * abs(stored)
        return abs(stored - today) <= allowed
    return type(stored) is type(today) and stored == today


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
