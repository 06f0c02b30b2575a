"""What measures are expected to take, and how time is shared among them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from flatgauge import deadline
from flatgauge.errors import FlatgaugeError
from flatgauge.measures.effort import gradient_seconds
from flatgauge.measures.registry import Gradients
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.requests import PlannedMeasure

# The share of the time that is left in which the model is looked at, and the gradients that
# it takes to see by what ways it is measured.
LOOKING, LOOKS = 0.1, 15.0
# How much longer than expected a measure may take before others are thought of.
SLACK = 1.5
# The same of a first estimate.
MARGIN = 1.25


class Expected(NamedTuple):
    """Seconds that a measure takes, and that it takes until there is an estimate.

    `of_shared` of them are for what other measures need, too, by the name `shared`.
    """

    whole: float
    first: float
    of_shared: float = 0.0
    shared: str = ""

    def times(self, factor: float) -> Expected:
        """The same, where all takes so much longer."""
        whole, first, of_shared = (factor * seconds for seconds in self[:3])
        return Expected(whole, first, of_shared, self.shared)


def admitted(left: float, expected: Sequence[Expected | None]) -> list[int]:
    """Which of them have time for a first estimate; those that need least come first.

    >>> admitted(10.0, [Expected(20.0, 6.0), Expected(9.0, 1.0), None])
    [0, 1, 2]
    >>> admitted(10.0, [Expected(20.0, 9.0), Expected(9.0, 1.0), None])
    [1, 2]
    """
    firsts = [0.0 if one is None else MARGIN * one.first for one in expected]
    found: list[int] = []
    for place in sorted(range(len(firsts)), key=lambda place: firsts[place]):
        if firsts[place] > left:
            break
        left -= firsts[place]
        found.append(place)
    return sorted(found)


def allowance(
    left: float, expected: Expected | None, later: Sequence[Expected | None]
) -> float:
    """The seconds that a measure may take of those that are left.

    Args:
        left: seconds to the end of the budget.
        expected: what it may take, if that is known.
        later: the same of those that come after it.

    >>> short, long = Expected(10.0, 0.0), Expected(40.0, 0.0)
    >>> allowance(100.0, short, [long] * 3), allowance(100.0, long, [long] * 3)
    (25.0, 60.0)
    """
    if left == math.inf:
        return left
    mine = Expected(0.0, 0.0) if expected is None else expected
    later = [later[place] for place in admitted(left - MARGIN * mine.first, later)]
    firsts = MARGIN * sum(one.first for one in [mine, *later] if one is not None)
    free = max(left - firsts, 0.0)
    even = free / (len(later) + 1)
    wanted = SLACK * mine.whole - MARGIN * mine.first
    return MARGIN * mine.first + max(even, min(wanted, free - len(later) * even / 2))


def cheap_first(expected: Mapping[str, Expected | None]) -> list[str]:
    """The requests by what they take; those that are not known come last."""
    costs = {r: math.inf if s is None else s.whole for r, s in expected.items()}
    return sorted(costs, key=lambda request: costs[request])


def expected_seconds(
    work: Workbench, plans: Mapping[str, PlannedMeasure]
) -> Iterator[tuple[str, Expected | None]]:
    """By request, the gradients that it takes, times the time of one."""
    gradient = gradient_seconds(work.objective)
    found = deadline.current()
    work.may_look = found is None or LOOKS * gradient <= LOOKING * found.left
    for request, (info, options) in plans.items():
        deadline.check()
        try:
            effort = None if info.effort is None else info.effort(work, options)
        except (FlatgaugeError, NotApplicable):
            # It does not apply, and says so in no time.
            effort = Gradients(0.0, 0.0)
        if effort is not None:
            yield request, Expected(*effort).times(gradient)


def in_turn(
    order: Sequence[str], expected: Mapping[str, Expected | None]
) -> dict[str, float | None]:
    """The seconds of each, where what is shared is done by the first that needs it.

    >>> one, other = Expected(5.0, 0.0, 4.0, "matrix"), Expected(6.0, 0.0, 4.0, "matrix")
    >>> in_turn(["b", "a", "c"], {"a": one, "b": other, "c": None})
    {'b': 6.0, 'a': 1.0, 'c': None}
    """
    found: dict[str, float | None] = {}
    done: set[str] = set()
    for request in order:
        one = expected[request]
        if one is None:
            found[request] = None
            continue
        found[request] = one.whole - one.of_shared * (one.shared in done)
        done |= {one.shared} - {""}
    return found
