from __future__ import annotations

import math
import signal
import threading

import pytest
from support.clocks import Clock

from flatgauge import deadline
from flatgauge.deadline import Deadline, OutOfTime
from flatgauge.durations import budget_seconds
from flatgauge.errors import OptionError


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(deadline, "clock", found)
    return found


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("5min", 300),
        ("90s", 90),
        ("2h", 7200),
        ("1h30min", 5400),
        ("1h 30min 5s", 5405),
        ("0.5min", 30),
        (12, 12),
        (0.5, 0.5),
        (math.inf, math.inf),
    ],
)
def test_budgets_are_understood(written, seconds):
    assert budget_seconds(written) == seconds


@pytest.mark.parametrize(
    "written",
    ["", "5 minutes", "min", "30min1h", "-3s", 0, -1, math.nan, True, "0s"],
)
def test_other_budgets_are_refused(written):
    with pytest.raises(OptionError, match="give seconds, or a time such as '90s'"):
        budget_seconds(written)


def test_nothing_is_checked_without_a_deadline():
    deadline.check()
    deadline.tell(1.0, 0.1)
    assert not deadline.watched()
    assert deadline.fitting(8) == 8
    assert deadline.in_groups(lambda some: [2 * one for one in some], [1, 2]) == [2, 4]


def test_the_end_is_found_by_the_next_check(clock):
    with Deadline(10.0).opened():
        clock.now = 9.9
        deadline.check()
        clock.now = 10.0
        with pytest.raises(OutOfTime):
            deadline.check()
    deadline.check()


def test_no_ordinary_handler_swallows_it():
    assert not issubclass(OutOfTime, Exception)


def test_a_part_ends_with_its_share_if_it_has_something_to_give(clock):
    with Deadline(10.0).opened():
        with deadline.part(0.2):
            clock.now = 5.0
            deadline.check()
            deadline.usable()
            with pytest.raises(OutOfTime):
                deadline.check()
        deadline.check()
        with deadline.part(0.2):
            clock.now = 5.0 + deadline.PATIENCE * 1.0
            with pytest.raises(OutOfTime):
                deadline.check()
        clock.now = 10.0
        with deadline.part(1.0), pytest.raises(OutOfTime):
            deadline.check()


def test_groups_are_as_large_as_their_pace_allows(clock):
    groups = []

    def apply(some):
        groups.append(len(some))
        clock.now += 0.5 * len(some)
        return some

    with Deadline(1000.0).opened():
        assert deadline.in_groups(apply, list(range(20))) == list(range(20))
    assert groups[0] == 1
    assert set(groups[1:-1]) == {int(deadline.GROUP / 0.5)}


def test_groups_inside_a_product_are_its_own(clock):
    heard = []
    inner = []

    def whole(some):
        inner.append(len(some))
        clock.now += 100
        return some

    with Deadline(math.inf, heard.append).opened():
        deadline.in_groups(lambda some: deadline.in_groups(whole, some * 3)[:1], [1, 2])
    assert inner == [3, 3]
    assert [step.products for step in heard] == [1, 2]


def test_what_is_heard(clock):
    heard = []
    limit = Deadline(60.0, heard.append)
    limit.begin("hessian-trace", 20.0)
    clock.now = 5.0
    with limit.opened():
        deadline.tell(3.0, 0.5, most=64)
        deadline.in_groups(lambda some: some, [1])
    assert heard[-1] == deadline.Step("hessian-trace", 1, 64, 3.0, 0.5, 5.0, 20.0, 55.0)


def test_the_first_interrupt_waits_and_the_second_raises():
    before = signal.getsignal(signal.SIGINT)
    limit = Deadline()
    with limit.opened(), limit.interruptible():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(OutOfTime) as stop:
            deadline.check()
        assert stop.value.after("here") == "Interrupted here."
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_other_handlers_and_threads_are_left_alone():
    own = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        mine = signal.getsignal(signal.SIGINT)
        with Deadline().interruptible():
            assert signal.getsignal(signal.SIGINT) is mine
    finally:
        signal.signal(signal.SIGINT, own)
    entered = []

    def elsewhere() -> None:
        with Deadline().interruptible():
            entered.append(True)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert entered == [True]
