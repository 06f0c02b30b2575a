"""What a run will take, in which order it is done, and how its time is shared."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from flatgauge.deadline import Deadline, OutOfTime, Step
from flatgauge.durations import time_shown
from flatgauge.measures.registry import Outcome
from flatgauge.measures.workbench import Workbench
from flatgauge.planning import (
    Expected,
    admitted,
    allowance,
    cheap_first,
    expected_seconds,
    in_turn,
)
from flatgauge.progress import Lines, Observer, Progress
from flatgauge.requests import PlannedMeasure
from flatgauge.results import Status

# The share of a budget that may go into the plan itself.
PLANNING = 0.25
# The share of a budget from which the time of a measure says something about others.
TELLING = 0.02
# How far one measure can be from what was expected and still speak for others.
FARTHEST = 5.0
# By how much a first estimate must be out of reach not to be tried, if there is time.
HOPELESS = 3.0
# Numbers of halves that can be compared.
COMPARABLE = (Status.EXACT, Status.CONVERGED, Status.ESTIMATED, Status.BIASED)


class InterruptedWarning(UserWarning):
    """A run was interrupted, and returned what it had."""


class Schedule:
    """The measures of one run, in time.

    With a budget the cheap ones come first. As many as there is time for are sure of a
    first estimate, those that need least for it before others; the time beyond is shared
    evenly, or as it is expected to be used if half of an even share is left to every
    later one. Thus none keeps the others from their turn, and what one does not use is
    left to those after it. Where measures took longer than expected, or less, so will others.

    Args:
        work: what the measures share.
        plans: measures and options by request.
        budget: in seconds; infinite for no limit, None if an interrupt is to raise.
        progress: what hears of it.
    """

    def __init__(
        self,
        work: Workbench,
        plans: Mapping[str, PlannedMeasure],
        budget: float | None,
        progress: Progress | bool | None,
    ):
        self.budget = budget
        self.order = list(plans)
        self.expected: dict[str, Expected | None] = dict.fromkeys(plans)
        self._work = work
        self._plans = plans
        self._pending: list[str] = []
        self._took, self._hoped, self._slower = 0.0, 0.0, 1.0
        ranks = work.objective.ranks
        self._listener = None
        if ranks.first:
            self._listener = Lines() if progress is True else progress or None
        told = isinstance(self._listener, Observer)
        self._deadline: Deadline | None = None
        if ranks.agreed(budget is not None or told):
            limit = math.inf if budget is None else budget
            hear = _heard(self._listener)
            self._deadline = Deadline(limit, hear, ranks.agreed)

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Make the plan, and keep to it inside."""
        with ExitStack() as stack:
            if self._deadline is not None:
                stack.enter_context(self._deadline.opened())
                if self.budget is not None:
                    stack.enter_context(self._deadline.interruptible())
                self._plan(self._deadline)
            if isinstance(self._listener, Lines):
                stack.callback(self._listener.close)
            yield
            if self.interrupted:
                warnings.warn(
                    "interrupted: what was finished is in the report, and the rest of it "
                    "is marked.",
                    InterruptedWarning,
                    stacklevel=4,
                )

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended the run."""
        return self._deadline is not None and self._deadline.interrupted

    def over(self) -> bool:
        """Whether there is no time for anything more."""
        found = self._deadline
        return found is not None and (found.interrupted or not found.left)

    def turns(self) -> Iterator[str]:
        """The requests, one after the other; those without time for them come last."""
        self._pending = list(self.order)
        while self._pending:
            place = 0
            if self._deadline is not None and self._deadline.left < math.inf:
                later = [self._now(one) for one in self._pending]
                place = min(admitted(self._deadline.left, later), default=0)
            yield self._pending.pop(place)

    def turn(
        self, request: str, index: int, function: Callable[[], Outcome]
    ) -> Outcome:
        """Let a measure take its time; what it cannot finish is marked."""
        if self._listener is not None:
            self._listener(request, index, len(self.order))
        limit = self._deadline
        if limit is None:
            return function()
        if self.over():
            return _nothing(OutOfTime(limit.interrupted), "before it began")
        expected = self._now(request)
        limit.begin(request, None if expected is None else expected.whole)
        later = [self._now(one) for one in self._pending]
        if expected is not None and expected.first > HOPELESS * limit.left:
            needed, left = time_shown(expected.first), time_shown(limit.left)
            when = (
                f"before it began: it needs about {needed} of the {left} that are left"
            )
            return _nothing(OutOfTime(limit.interrupted), when)
        try:
            begun = limit.spent
            with limit.within(allowance(limit.left, expected, later)):
                outcome = function()
            if outcome.status is not Status.NOT_CONVERGED:
                self._learn(request, limit.spent - begun)
            return outcome
        except OutOfTime as stop:
            return _nothing(stop, "before there was an estimate")
        except KeyboardInterrupt:
            self._take_in(limit)
            return _nothing(OutOfTime(interrupted=True), "before there was an estimate")

    def values(
        self, work: Workbench, compute: Callable[..., Outcome]
    ) -> dict[str, float]:
        """What the measures say of a part of the data, as far as it can be trusted.

        Args:
            work: of the part.
            compute: the outcome for a workbench, a measure and its options.

        Raises:
            OutOfTime: if not all of them could be computed.
        """
        found: dict[str, float] = {}
        for request, (info, options) in self._plans.items():
            if self._deadline is not None:
                self._deadline.begin(f"{request}, half of the data", None)
            try:
                outcome = compute(work, info, options)
            except KeyboardInterrupt:
                self._take_in(self._deadline)
                raise OutOfTime(interrupted=True) from None
            if self.over():
                raise OutOfTime(self.interrupted)
            if outcome.value is not None and outcome.status in COMPARABLE:
                found[request] = outcome.value
        return found

    def to_dict(self, unfinished: int) -> dict[str, Any] | None:
        """What a report keeps of it, if it had a limit or was interrupted."""
        limit = self._deadline
        if limit is None or self.budget is None:
            return None
        if self.budget == math.inf and not self.interrupted:
            return None
        end = "interrupted after" if self.interrupted else "took"
        text = f"{end} {time_shown(limit.spent)}"
        if self.budget < math.inf:
            text += f" of {time_shown(self.budget)}"
        if unfinished:
            text += f": {unfinished} of {len(self.order)} measures are not finished"
        return {
            "text": f"{text}.",
            "seconds": self.budget,
            "spent": limit.spent,
            "expected": self._whole(),
            "order": self.order,
            "interrupted": self.interrupted,
        }

    def _learn(self, request: str, seconds: float) -> None:
        """Compare what a measure took with what was expected."""
        expected = self.expected[request]
        if expected is not None and self.budget is not None:
            if max(seconds, expected.whole) > TELLING * self.budget:
                self._took += seconds
                self._hoped += expected.whole
            if self._hoped > 0:
                ratio = self._took / self._hoped
                self._slower = min(max(ratio, 1 / FARTHEST), FARTHEST)

    def _now(self, request: str) -> Expected | None:
        """What a measure is expected to take, by what those before it took."""
        expected = self.expected[request]
        return None if expected is None else expected.times(self._slower)

    def _take_in(self, limit: Deadline | None) -> None:
        """An interrupt ends the run, unless it is to raise, or is the second one."""
        if limit is None or self.budget is None or limit.interrupted:
            raise
        limit.interrupt()

    def _plan(self, limit: Deadline) -> None:
        try:
            with limit.within(PLANNING * limit.left):
                for request, one in expected_seconds(self._work, self._plans):
                    self.expected[request] = one
        except OutOfTime:
            # The measures will say so themselves.
            pass
        except KeyboardInterrupt:
            self._take_in(limit)
        if self.budget is not None and self.budget < math.inf:
            self.order = cheap_first(self.expected)
        left = limit.left
        if isinstance(self._listener, Observer):
            self._listener.planned(self._whole(), left)

    def _whole(self) -> dict[str, float | None]:
        return in_turn(self.order, self.expected)


def _heard(listener: Progress | None) -> Callable[[Step], None] | None:
    """What hears how far a measure is: estimates on the way are made for it alone."""
    if not isinstance(listener, Observer):
        return None
    deaf = type(listener).inside is Observer.inside
    return None if deaf else listener.inside


def _nothing(stop: OutOfTime, when: str) -> Outcome:
    return Outcome(None, Status.NOT_CONVERGED, stop.after(when))
