"""A limit on the time of a run, and what is told while it goes on.

Code that works in pieces calls `check` before each of them, and `tell` where it has an
estimate. Both do nothing outside a run with a `Deadline`.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")
S = TypeVar("S")
clock = time.monotonic
# How much longer than its share work may go on that has nothing to give yet.
PATIENCE = 3.0
# Seconds that products asked for at a time may take, before the clock is looked at.
GROUP = 3.0


class OutOfTime(BaseException):
    """The work ends here; what has an estimate to give catches this and gives it.

    No `Exception`: what goes on after errors must not go on after this.
    """

    def __init__(self, interrupted: bool = False):
        super().__init__("interrupted" if interrupted else "out of time")
        self.interrupted = interrupted

    def after(self, done: str) -> str:
        """What happened, and what to raise.

        >>> OutOfTime().after("after 3 products")
        'Stopped by the budget after 3 products: raise budget=.'
        """
        if self.interrupted:
            return f"Interrupted {done}."
        return f"Stopped by the budget {done}: raise budget=."

    def after_products(self, count: int) -> str:
        """The same, after so many products."""
        return self.after(f"after {count} product{'' if count == 1 else 's'}")


@dataclass(frozen=True)
class Step:
    """How far a measure is.

    Attributes:
        request: the string that asked for it.
        products: with the curvature so far.
        most: the most products of the solver at work, if it has said.
        estimate: the value so far, if there is one.
        error: its error.
        seconds: spent on the measure.
        expected: what it was expected to take, if that is known.
        left: seconds to the end of the budget; infinite without one.
    """

    request: str
    products: int
    most: int | None
    estimate: float | None
    error: float | None
    seconds: float
    expected: float | None
    left: float


class Deadline:
    """When a run must end, and who hears of its progress.

    A part of it that has a share of the time (`within`) ends with its share if it has
    something to give by then, and may go on a while if not: the time that it has taken
    would be lost.

    Args:
        seconds: from now on.
        hear: called with a `Step` after products and estimates.
        agree: makes one of what several processes give, so that all stop together.
    """

    def __init__(
        self,
        seconds: float = math.inf,
        hear: Callable[[Step], None] | None = None,
        agree: Callable[[Any], Any] = lambda own: own,
    ):
        self.end = self._soft = self._late = seconds
        self._interrupted = False
        self._started = clock()
        self._agree = agree
        self._hear = hear
        self._pace = math.inf
        self._multiplying = False
        self.begin("", None)

    @property
    def left(self) -> float:
        """Seconds to the end, 0 after it."""
        return max(0.0, self.end - self.spent)

    @property
    def share_left(self) -> float:
        """Seconds to the end of the share of what is at work."""
        return max(0.0, self._soft - self.spent)

    @property
    def _stop(self) -> float:
        return self._soft if self._usable else self._late

    @property
    def spent(self) -> float:
        """Seconds since it was made."""
        return self._agree(self._elapsed)

    @property
    def interrupted(self) -> bool:
        """Whether the work is to end as soon as it can."""
        return self._agree(self._interrupted)

    @property
    def _elapsed(self) -> float:
        return clock() - self._started

    def interrupt(self) -> None:
        """End the work at its next check."""
        self._interrupted = True

    def begin(self, request: str, expected: float | None) -> None:
        """The next steps are those of another measure."""
        self._request, self._expected, self._begun = request, expected, self.spent
        self._products, self._most, self._usable = 0, None, False
        self._estimate: float | None = None
        self._error: float | None = None

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Checks inside are against this deadline."""
        token = _CURRENT.set(self)
        try:
            yield
        finally:
            _CURRENT.reset(token)

    @contextmanager
    def within(self, seconds: float) -> Iterator[None]:
        """A share of the time, for what is inside."""
        outer, now = (self._soft, self._late), self.spent
        self._soft = min(self._soft, now + seconds)
        self._late = min(self._late, now + PATIENCE * seconds)
        self._usable = False
        try:
            yield
        finally:
            self._soft, self._late = outer
            self._usable = False

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        """The first Ctrl-C ends the work at its next check; the second one raises.

        Elsewhere than in the main thread, or where others handle the signal already, it
        is left to them.
        """
        plain = signal.default_int_handler
        main = threading.current_thread() is threading.main_thread()
        if not main or signal.getsignal(signal.SIGINT) is not plain:
            yield
            return

        def note(number: int, frame: Any) -> None:
            if self._interrupted:
                plain(number, frame)
            self.interrupt()

        signal.signal(signal.SIGINT, note)
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, plain)

    def check(self) -> None:
        """Raise `OutOfTime` after the end or an interrupt."""
        interrupted, now = self._agree((self._interrupted, self._elapsed))
        if interrupted or now >= self._stop:
            raise OutOfTime(interrupted)

    def usable(self) -> None:
        """Take note that what is at work has something to give."""
        self._usable = True

    def fitting(self, count: int) -> int:
        """So many of `count` products at a time that the clock is looked at often."""
        seconds = min(GROUP, self._stop - self.spent)
        return max(1, min(count, int(min(seconds / self._pace, 1e9))))

    def in_groups(
        self, apply: Callable[[list[S]], list[T]], vectors: list[S]
    ) -> list[T]:
        """Products with a few vectors at a time; those inside a product are its own."""
        if self._multiplying:
            return apply(vectors)
        found: list[T] = []
        while len(found) < len(vectors):
            self.check()
            group = vectors[len(found) :][: self.fitting(len(vectors))]
            before, self._multiplying = self.spent, True
            try:
                found += apply(group)
            finally:
                self._multiplying = False
            self._pace = max((self.spent - before) / len(group), 1e-9)
            self._products += len(group)
            self.tell()
        return found

    def tell(
        self,
        estimate: float | None = None,
        error: float | None = None,
        most: int | None = None,
    ) -> None:
        """Pass on how far the work is; what is None stays as it was."""
        self._usable = self._usable or estimate is not None
        if self._hear is None:
            return
        self._most = self._most if most is None else most
        if estimate is not None:
            self._estimate, self._error = estimate, error
        self._hear(
            Step(
                self._request,
                self._products,
                self._most,
                self._estimate,
                self._error,
                self._elapsed - self._begun,
                self._expected,
                max(0.0, self.end - self._elapsed),
            )
        )


_CURRENT: ContextVar[Deadline | None] = ContextVar("deadline", default=None)


def current() -> Deadline | None:
    """The deadline of the run that this is called in."""
    return _CURRENT.get()


def check() -> None:
    """Raise `OutOfTime` if the run must end here."""
    found = _CURRENT.get()
    if found is not None:
        found.check()


def tell(estimate: float, error: float | None, most: int | None = None) -> None:
    """Pass on the estimate so far, its error, and the most products to come."""
    found = _CURRENT.get()
    if found is not None:
        found.tell(estimate, error, most)


def usable() -> None:
    """Say that `OutOfTime` would find something to give from now on."""
    found = _CURRENT.get()
    if found is not None:
        found.usable()


def watched() -> bool:
    """Whether estimates are told to anybody, and worth computing for that."""
    found = _CURRENT.get()
    return found is not None and found._hear is not None


def fitting(count: int) -> int:
    """How many of `count` products to ask for at a time."""
    found = _CURRENT.get()
    return count if found is None else found.fitting(count)


def in_groups(apply: Callable[[list[S]], list[T]], vectors: list[S]) -> list[T]:
    """The products with some vectors, looking at the clock between groups of them."""
    found = _CURRENT.get()
    return apply(vectors) if found is None else found.in_groups(apply, vectors)


@contextmanager
def part(share: float) -> Iterator[None]:
    """What is inside may take this share of the time that is left."""
    found = _CURRENT.get()
    if found is None:
        yield
        return
    with found.within(share * found.share_left):
        yield
