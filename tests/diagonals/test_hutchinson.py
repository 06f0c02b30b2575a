"""Random diagonals and block traces that time ends."""

from __future__ import annotations

import pytest
from support.cases import CASES, assert_close
from support.clocks import Clock

import flatgauge as fg
from flatgauge import deadline
from flatgauge.curvature import operator
from flatgauge.diagonals.diagonal import hutchinson_diagonals
from flatgauge.diagonals.hutchinson import block_traces
from flatgauge.measures.workbench import Workbench
from flatgauge.vectors import add, norm


@pytest.fixture
def hessian(monkeypatch) -> fg.Hessian:
    """Its products take a second each."""
    clock = Clock()
    monkeypatch.setattr(deadline, "clock", clock)
    found = fg.Hessian(CASES["gelu"].objective())
    apply = found._apply

    def slow(vectors):
        clock.now += len(vectors)
        return apply(vectors)

    monkeypatch.setattr(found, "_apply", slow)
    return found


def test_replicates_take_turns(hessian):
    whole, stop = hutchinson_diagonals(hessian, 2, range(5))
    assert (len(whole), stop) == (5, None)
    with deadline.Deadline(7.0).opened():
        part, stop = hutchinson_diagonals(hessian, 2, range(5))
    assert stop is not None
    # Two have both of their probes, as without a limit, and three their first.
    for index in range(5):
        difference = float(norm(add(part[index].values, whole[index].values, -1.0)))
        assert (difference < 1e-9) is (index < 2)


def test_probes_go_one_by_one_where_memory_is_short(hessian, monkeypatch):
    whole, _ = hutchinson_diagonals(hessian, 2, range(2))
    monkeypatch.setattr(operator, "LITTLE", 0)
    monkeypatch.setattr(operator, "memory_budget", lambda *_: 0)
    apply, counts = hessian._apply, []

    def counted(vectors):
        counts.append(len(vectors))
        return apply(vectors)

    monkeypatch.setattr(hessian, "_apply", counted)
    few, _ = hutchinson_diagonals(hessian, 2, range(2))
    assert counts == [1] * 4
    for one, other in zip(whole, few, strict=True):
        assert_close(one.values, other.values)


def test_replicates_without_a_probe_are_left_out(hessian):
    with deadline.Deadline(3.0).opened():
        found, stop = hutchinson_diagonals(hessian, 2, range(5))
    assert len(found) == 3
    assert stop is not None


def test_a_partial_diagonal_is_marked_and_has_an_error(hessian, monkeypatch):
    objective = hessian.objective
    work = Workbench(objective)
    monkeypatch.setattr(work, "hessian", lambda _: hessian)
    monkeypatch.setattr(work, "method", lambda *_: "hutchinson")
    with deadline.Deadline(7.0).opened():
        found = work.diagonal(objective, "hessian", probes=30)
    assert found.status is fg.Status.NOT_CONVERGED
    assert "Stopped by the budget after 5 estimates of the diagonal" in found.message
    value, error = found.evaluate(lambda h: sum(float(t.sum()) for t in h.values()))
    truth = float(fg.Hessian(objective).to_dense().diagonal().sum())
    assert error is not None
    assert abs(value - truth) < 4 * error
    with deadline.Deadline(1.0).opened(), pytest.raises(deadline.OutOfTime):
        Workbench.diagonal(work, objective, "hessian", probes=20)


def test_block_traces_end_with_two(hessian):
    whole, _ = block_traces(hessian, 6, 0)
    with deadline.Deadline(4.0).opened():
        part, stopped = block_traces(hessian, 6, 0)
    assert stopped is not None
    assert len(part) == 4
    for one, other in zip(part, whole, strict=False):
        assert one == pytest.approx(other, rel=1e-9)
    with deadline.Deadline(1.0).opened(), pytest.raises(deadline.OutOfTime):
        block_traces(hessian, 6, 0)
