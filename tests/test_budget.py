"""Budgets, interrupts and progress of a whole run, on a clock that tests move."""

from __future__ import annotations

import math
import signal
from functools import wraps

import pytest
import torch
from support.clocks import Clock, SlowLayer
from support.untouched import global_state, model_state
from torch import nn

import flatgauge as fg
from flatgauge import deadline
from flatgauge.errors import OptionError
from flatgauge.measures.registry import Outcome, find_measure
from flatgauge.planning import Expected, admitted, allowance, cheap_first
from flatgauge.progress import Lines, Observer
from flatgauge.requests import DEFAULT
from flatgauge.schedule import InterruptedWarning
from flatgauge.vectors import size

PARTIAL = "hessian-spectral-norm"
EXACT = "fisher-rao-norm"


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(deadline, "clock", found)
    return found


@pytest.fixture
def model(clock) -> nn.Module:
    torch.manual_seed(0)
    layers = (nn.Linear(4, 12), nn.GELU(), nn.Linear(12, 3))
    return nn.Sequential(SlowLayer(clock), *layers).double()


@pytest.fixture
def objective(model) -> fg.Objective:
    data = torch.randn(12, 4).double(), torch.randint(0, 3, (12,))
    return fg.Objective(model, data, batch_size=4)


class Heard(Observer):
    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int]] = []
        self.plan: dict[str, float | None] = {}
        self.steps: list[deadline.Step] = []

    def __call__(self, what: str, index: int, count: int) -> None:
        self.begun.append((what, index, count))

    def planned(self, expected, budget) -> None:
        self.plan = dict(expected)

    def inside(self, step: deadline.Step) -> None:
        self.steps.append(step)


def test_time_enough_gives_what_there_is_without_a_budget(objective):
    plain, timed = fg.measure(objective), fg.measure(objective, budget="10h")
    for request, one in plain.measurements.items():
        assert timed[request].value == pytest.approx(one.value, rel=1e-12)
        assert timed[request].status is one.status
    assert "budget" not in plain.extras
    assert timed.extras["budget"]["seconds"] == 36_000
    assert "10 h 0 min" in str(timed)


def test_the_report_keeps_the_order_of_the_requests(objective):
    report = fg.measure(objective, budget="1h")
    assert list(report) == list(DEFAULT)
    order = report.extras["budget"]["order"]
    assert sorted(order) == sorted(DEFAULT)
    assert order.index(EXACT) < order.index(PARTIAL)


@pytest.mark.parametrize("seconds", [1, 5, 20, 60, 200])
def test_what_time_does_not_allow_is_marked(objective, clock, seconds, tmp_path):
    begun = clock.now
    report = fg.measure(objective, budget=seconds)
    assert list(report) == list(DEFAULT)
    # One pass over the data, 3 seconds, is what it may take too long.
    assert clock.now - begun <= seconds + 4
    for one in report.measurements.values():
        if not one.status.trusted and one.status is not fg.Status.BIASED:
            assert one.status is fg.Status.NOT_CONVERGED
            assert one.message.startswith("Stopped by the budget ")
            assert "raise budget=" in one.message
            assert one.value is None or one.uncertainty is not None
    report.to_json(tmp_path / "report.json")
    assert fg.Report.from_json(tmp_path / "report.json") == report
    report.to_html(tmp_path / "report.html")
    stopped = "Stopped by the budget" in (tmp_path / "report.html").read_text()
    assert stopped is (seconds < 60)


def test_strict_raises_what_time_does_not_allow(objective):
    with pytest.raises(fg.FlatgaugeError, match="Stopped by the budget"):
        fg.measure(objective, budget=5, strict=True)


@pytest.mark.parametrize("budget", ["soon", 0, -1])
def test_other_budgets_are_refused_before_anything(objective, clock, budget):
    before = clock.now
    with pytest.raises(OptionError, match="budget= is"):
        fg.measure(objective, budget=budget)
    assert clock.now == before


def test_a_plain_progress_function_still_serves(objective):
    told = []
    fg.measure(objective, EXACT, PARTIAL, progress=lambda *one: told.append(one))
    assert told == [(EXACT, 0, 2), (PARTIAL, 1, 2)]


def test_an_observer_hears_the_plan_and_the_steps(objective):
    heard = Heard()
    found = fg.measure(objective, PARTIAL, EXACT, progress=heard)[PARTIAL]
    assert list(heard.plan) == [PARTIAL, EXACT]
    assert all(seconds > 0 for seconds in heard.plan.values())
    assert heard.begun == [(PARTIAL, 0, 2), (EXACT, 1, 2)]
    steps = [step for step in heard.steps if step.request == PARTIAL]
    # Of which so many made the matrix that the others read.
    made = size(objective.parameters)
    assert steps[-1].products + made == found.cost.products
    last = next(step for step in reversed(steps) if step.estimate is not None)
    assert last.estimate == pytest.approx(found.value)
    assert last.error == pytest.approx(found.uncertainty, rel=1e-2)
    assert last.most == 300
    assert last.left == math.inf


def test_estimates_on_the_way_are_made_for_those_who_hear_them(objective):
    watched = []

    class Planned(Observer):
        def planned(self, expected, budget):
            watched.append(expected)

        def __call__(self, what, index, count):
            watched.append(deadline.watched())

    fg.measure(objective, "hessian-trace", progress=Planned())
    assert list(watched[0]) == ["hessian-trace"]
    assert watched[1:] == [False]


@pytest.mark.parametrize("terminal", [False, True])
def test_lines_of_progress(objective, clock, terminal, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    fg.measure(objective, PARTIAL, progress=True)
    lines = capsys.readouterr().err
    assert "hessian-spectral-norm: about" in lines
    assert "hessian-spectral-norm (1 of 1)" in lines
    assert ("\r" in lines) is terminal


def test_lines_come_seldom_where_they_stay(clock, capsys):
    lines = Lines()
    lines("hessian-trace", 0, 1)
    for second in range(30):
        clock.now = float(second)
        lines.inside(deadline.Step("", second, 64, 3.0, 0.5, float(second), 60.0, 90.0))
    assert len(capsys.readouterr().err.splitlines()) == 3


@pytest.fixture
def slow_measures(monkeypatch):
    """Replaces the function of a measure."""

    def put(name: str, function) -> None:
        info = find_measure(name)
        replaced = wraps(info.function)(lambda *_, **__: function())
        monkeypatch.setitem(vars(info), "function", replaced)

    return put


def interrupt() -> Outcome:
    raise KeyboardInterrupt


def test_an_interrupt_returns_what_is_finished(objective, slow_measures):
    slow_measures("hessian-trace", interrupt)
    names = (EXACT, "hessian-trace", PARTIAL)
    with pytest.warns(InterruptedWarning, match="what was finished is in the report"):
        report = fg.measure(objective, *names, budget=math.inf)
    assert list(report) == list(names)
    assert report[EXACT].status is fg.Status.EXACT
    assert report["hessian-trace"].message == (
        "Interrupted before there was an estimate."
    )
    assert report[PARTIAL].message == "Interrupted before it began."
    assert report.extras["budget"]["interrupted"] is True
    assert "interrupted after" in str(report)


def test_without_a_budget_an_interrupt_raises(objective, slow_measures):
    slow_measures("hessian-trace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fg.measure(objective, "hessian-trace")
    with pytest.raises(KeyboardInterrupt):
        fg.measure(objective, "hessian-trace", progress=Heard())


def test_the_signal_leaves_a_running_solver_its_estimate(objective):
    before = signal.getsignal(signal.SIGINT)

    class Impatient(Heard):
        def inside(self, step: deadline.Step) -> None:
            if step.products == 3 and not self.steps:
                self.steps.append(step)
                signal.raise_signal(signal.SIGINT)

    with pytest.warns(InterruptedWarning):
        report = fg.measure(
            objective, PARTIAL, EXACT, budget=math.inf, progress=Impatient()
        )
    found = report[PARTIAL]
    assert found.status is fg.Status.NOT_CONVERGED
    assert found.message == "Interrupted after 3 products."
    truth = float(torch.linalg.eigvalsh(fg.Hessian(objective).to_dense())[-1])
    assert found.value <= truth <= found.value + found.uncertainty
    assert report[EXACT].value is None
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_signal_raises(objective, slow_measures):
    def twice() -> Outcome:
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")

    slow_measures("hessian-trace", twice)
    with pytest.raises(KeyboardInterrupt):
        fg.measure(objective, "hessian-trace", budget="1h")


@pytest.mark.parametrize("seconds", [1, 7, 30])
def test_nothing_of_the_users_is_changed(objective, model, seconds):
    model.train()
    model[1].weight.grad = torch.ones_like(model[1].weight)
    before = model_state(model), global_state()
    fg.measure(objective, budget=seconds)
    assert (model_state(model), global_state()) == before

    def stop() -> None:
        raise KeyboardInterrupt

    objective.network.model[0].tick.action = stop
    with pytest.warns(InterruptedWarning):
        fg.measure(objective, EXACT, budget=1e6)
    objective.network.model[0].tick.action = None
    assert (model_state(model), global_state()) == before
    assert fg.measure(objective, EXACT)[EXACT].status is fg.Status.EXACT


def test_cheap_ones_come_first_and_unknown_ones_last():
    expected = {"a": Expected(9.0, 1.0), "b": None, "c": Expected(2.0, 2.0)}
    assert cheap_first(expected) == ["c", "a", "b"]


def test_shares_never_take_what_others_need_for_a_first_estimate():
    costs = [Expected(50.0, 10.0), Expected(80.0, 20.0), Expected(90.0, 5.0)]
    left = 60.0
    for index, one in enumerate(costs):
        later = costs[index + 1 :]
        taken = allowance(left, one, later)
        assert one.first <= taken
        left -= taken
        assert left >= sum(each.first for each in later)
    assert left == pytest.approx(0.0)
    assert admitted(20.0, costs) == [0, 2]


def test_measures_of_others_have_no_known_cost(objective, monkeypatch):
    heard = Heard()
    monkeypatch.setitem(vars(find_measure(EXACT)), "effort", None)
    fg.measure(objective, EXACT, progress=heard, budget="1h")
    assert heard.plan == {EXACT: None}
