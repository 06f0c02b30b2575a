"""What a run will take, in which order it is done, and how its time is shared."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

from flatgauge import deadline
from flatgauge.deadline import Deadline, OutOfTime, time_shown
from flatgauge.errors import FlatgaugeError
from flatgauge.measures.registry import Outcome
from flatgauge.measures.workbench import NotApplicable, Workbench
from flatgauge.objective import Objective
from flatgauge.progress import Lines, Observer, Progress
from flatgauge.requests import Plan
from flatgauge.results import Status
from flatgauge.vectors import gradient_of

# A gradient is timed again where it was quick: the first one also warms up.
QUICK = 1.0
# The share of a budget that may go into the plan itself.
PLANNING = 0.1
# Numbers of halves that can be compared.
COMPARABLE = (Status.EXACT, Status.CONVERGED, Status.ESTIMATED, Status.BIASED)
# How much longer than expected a measure may take before others are thought of.
SLACK = 1.5


class InterruptedWarning(UserWarning):
    """A run was interrupted, and returned what it had."""


class Schedule:
    """The measures of one run, in time.

    With a budget the cheap ones come first, and each may take an even share of the time
    that is left, or what it is expected to take if half of an even share is left for
    every later one. Thus none keeps the others from their turn, and what one does not
    use is left to those after it.

    Args:
        work: what the measures share.
        plans: measures and options by request.
        budget: in seconds; infinite for no limit, None if an interrupt is to raise.
        progress: what hears of it.
    """

    def __init__(
        self,
        work: Workbench,
        plans: Mapping[str, Plan],
        budget: float | None,
        progress: Progress | bool | None,
    ):
        self.budget = budget
        self.order = list(plans)
        self.expected: dict[str, float | None] = dict.fromkeys(plans)
        self._work = work
        self._plans = plans
        self._listener = Lines() if progress is True else progress or None
        hear = self._listener.inside if isinstance(self._listener, Observer) else None
        self._deadline: Deadline | None = None
        if budget is not None or hear is not None:
            self._deadline = Deadline(math.inf if budget is None else budget, hear)

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
        limit.begin(request, self.expected[request])
        later = len(self.order) - index - 1
        try:
            with limit.within(allowance(limit.left, self.expected[request], later)):
                return function()
        except OutOfTime as stop:
            return _nothing(stop, "before there was an estimate")
        except KeyboardInterrupt:
            if self.budget is None or limit.interrupted:
                raise
            limit.interrupted = True
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
                if self.budget is None or self.interrupted:
                    raise
                raise OutOfTime(interrupted=True) from None
            if self.over():
                raise OutOfTime(self.interrupted)
            if outcome.value is not None and outcome.status in COMPARABLE:
                found[request] = outcome.value
        return found

    def to_dict(self, unfinished: int) -> dict[str, Any] | None:
        """What a report keeps of it, if time was short or a budget was given."""
        limit = self._deadline
        if limit is None or self.budget is None:
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
            "expected": dict(self.expected),
            "order": self.order,
            "interrupted": self.interrupted,
        }

    def _plan(self, limit: Deadline) -> None:
        try:
            with limit.within(PLANNING * limit.left):
                self.expected = expected_seconds(self._work, self._plans)
        except OutOfTime:
            # The measures will say so themselves.
            pass
        if self.budget is not None and self.budget < math.inf:
            self.order = cheap_first(self.expected)
        if isinstance(self._listener, Observer):
            told = {request: self.expected[request] for request in self.order}
            self._listener.planned(told, limit.left)


def _nothing(stop: OutOfTime, when: str) -> Outcome:
    return Outcome(None, Status.NOT_CONVERGED, stop.after(when))


def allowance(left: float, expected: float | None, later: int) -> float:
    """The seconds that a measure may take of those that are left.

    Args:
        left: seconds to the end of the budget.
        expected: what it may take, if that is known.
        later: how many measures come after it.

    >>> allowance(100.0, 10.0, later=3), allowance(100.0, 40.0, later=3)
    (25.0, 60.0)
    """
    even = left / (later + 1)
    wanted = 0.0 if expected is None else SLACK * expected
    return max(even, min(wanted, left - later * even / 2))


def cheap_first(expected: Mapping[str, float | None]) -> list[str]:
    """The requests by what they take; those that are not known come last."""
    costs = {r: math.inf if s is None else s for r, s in expected.items()}
    return sorted(costs, key=lambda request: costs[request])


def expected_seconds(
    work: Workbench, plans: Mapping[str, Plan]
) -> dict[str, float | None]:
    """By request, the gradients that it takes, times the time of one."""
    gradient = gradient_seconds(work.objective)
    found: dict[str, float | None] = {}
    for request, (info, options) in plans.items():
        deadline.check()
        try:
            effort = None if info.effort is None else info.effort(work, options)
        except (FlatgaugeError, NotApplicable):
            # It does not apply, and says so in no time.
            effort = 0.0
        found[request] = None if effort is None else gradient * effort
    return found


def gradient_seconds(objective: Objective) -> float:
    """The seconds of one gradient, by that of the first batch."""

    def once() -> float:
        started = time.perf_counter()
        with objective.isolated():
            batch = objective.first_batch()
            leaves = objective.leaves()
            slope = gradient_of(objective.batch_total(leaves, batch), leaves)
            # Waits for the device.
            float(next(iter(slope.values())).sum())
        return time.perf_counter() - started

    taken = once()
    if taken < QUICK:
        taken = once()
    return taken * objective.sample_count / max(objective.batch_sizes[0], 1)
