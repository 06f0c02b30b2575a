from __future__ import annotations

from collections.abc import Iterator

import pytest

from flatgauge import deadline
from flatgauge.deadline import OutOfTime
from flatgauge.draws import while_time_lasts


def draws(count: int) -> Iterator[int]:
    """So many, and then time runs out."""
    yield from range(count)
    raise OutOfTime


def test_all_that_there_are():
    assert while_time_lasts(iter("abc")) == (["a", "b", "c"], None)
    assert while_time_lasts(()) == ([], None)


@pytest.mark.parametrize("count", [2, 5])
def test_what_there_is_when_time_runs_out(count):
    found, stop = while_time_lasts(draws(count))
    assert found == list(range(count))
    assert isinstance(stop, OutOfTime)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_have_no_error(count):
    with pytest.raises(OutOfTime):
        while_time_lasts(draws(count))


def test_two_are_something_to_give(monkeypatch):
    said = []
    monkeypatch.setattr(deadline, "usable", lambda: said.append(None))
    while_time_lasts(range(1))
    assert not said
    while_time_lasts(range(2))
    assert said
