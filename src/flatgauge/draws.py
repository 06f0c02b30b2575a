"""Independent draws, as many as time allows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from flatgauge import deadline
from flatgauge.deadline import OutOfTime

T = TypeVar("T")
# The fewest that have a standard error.
LEAST = 2


def while_time_lasts(draws: Iterable[T]) -> tuple[list[T], OutOfTime | None]:
    """All of them, or those before time ran out, and what ended them.

    Raises:
        OutOfTime: if there are fewer than two by then.
    """
    found: list[T] = []
    try:
        for one in draws:
            found.append(one)
            if len(found) >= LEAST:
                deadline.usable()
    except OutOfTime as stop:
        if len(found) < LEAST:
            raise
        return found, stop
    return found, None
