"""The monitor of a training: never in its way, and within its share of the time."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from support.clocks import Clock
from support.training import assert_equal_bits, dataset, dropout_network, left_behind
from torch import nn
from torch.utils.data import DataLoader, IterableDataset

import flatgauge as fg
from flatgauge import deadline
from flatgauge.errors import OptionError
from flatgauge.integrations import monitor as module
from flatgauge.integrations.monitor import (
    CUT_SHORT,
    FlatnessMonitor,
    FlatnessWarning,
    first_samples,
)

TRACE = "hessian-trace"
OFTEN = {"every": 3, "share": 0.99}


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(deadline, "clock", found)
    return found


def train(monitor: Any, steps: int = 12) -> list[Any]:
    """A plain loop, which calls the monitor if there is one."""
    model = dropout_network()
    loader = DataLoader(dataset(), batch_size=8, shuffle=True)
    optimizer = torch.optim.Adam(model.parameters())
    step = 0
    while step < steps:
        for inputs, targets in loader:
            step += 1
            optimizer.zero_grad()
            F.cross_entropy(model(inputs), targets).backward()
            optimizer.step()
            if monitor is not None:
                monitor(model, step)
    return left_behind(model, optimizer)


def test_training_is_the_same_bit_for_bit(monkeypatch):
    monkeypatch.setattr(module, "LEAST", 0.0)
    loader = DataLoader(dataset(), batch_size=8, shuffle=True)
    monitor = FlatnessMonitor(first_samples(loader, 16), **OFTEN)
    # Time that has passed before the first step counts as the training's.
    monitor.start()
    monitor._started -= 1e6
    assert_equal_bits(train(monitor), train(None))
    assert list(monitor.reports) == [3, 6, 9, 12]
    assert monitor.series().points[-1].report[TRACE].status.trusted


def test_a_failure_is_a_warning_and_leaves_the_training_as_it_is(monkeypatch):
    def fails(*_: Any, **__: Any) -> None:
        torch.rand(3)
        raise RuntimeError("broken on purpose")

    expected = train(None)
    monitor = FlatnessMonitor(dataset().tensors, **OFTEN)
    monitor.start()
    monitor._started -= 1e6
    monitor.loss = lambda outputs, targets: fails()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = train(monitor)
    assert_equal_bits(found, expected)
    said = [one for one in caught if one.category is FlatnessWarning]
    assert "the training goes on" in str(said[0].message)
    assert not monitor.reports


def cut_short(whole: fg.Report) -> fg.Report:
    plain = whole.to_dict()
    about = {"status": "NOT_CONVERGED", "message": f"{CUT_SHORT} after 1 product."}
    for one in plain["measurements"].values():
        one |= about
    return fg.Report.from_dict(plain)


class Slow:
    """In place of the measurement: it takes so long, or as long as it may."""

    def __init__(self, clock: Clock, seconds: float, monkeypatch: pytest.MonkeyPatch):
        self.clock, self.seconds = clock, seconds
        self.budgets: list[float] = []
        data = torch.randn(3, 2).double(), torch.tensor([0, 1, 0])
        self.whole = fg.measure(fg.Objective(nn.Linear(2, 2).double(), data), TRACE)
        self.cut = cut_short(self.whole)
        monkeypatch.setattr(module, "measure", self)
        monkeypatch.setattr(module, "Objective", lambda *_, **__: None)

    def __call__(self, objective: Any, *_: Any, budget: float, **__: Any) -> fg.Report:
        self.budgets.append(budget)
        self.clock.now += min(budget, self.seconds)
        return self.whole if budget >= self.seconds else self.cut


@pytest.mark.parametrize("share", [0.01, 0.05, 0.3])
@pytest.mark.parametrize("seconds", [0.1, 1.0, 20.0])
def test_the_share_is_kept(share, seconds, clock, monkeypatch):
    """Over ten minutes of steps that take half a second each."""
    slow = Slow(clock, seconds, monkeypatch)
    monitor = FlatnessMonitor(None, TRACE, every=4, share=share)
    monitor.start()
    step = 0
    while clock.now < 600:
        step += 1
        clock.now += 0.5
        monitor(nn.Linear(2, 2), step)
        assert monitor.spent <= share * clock.now + 1e-9
    assert monitor.spent == pytest.approx(sum(min(b, seconds) for b in slow.budgets))
    # What fits in is done, at every step that it is asked for.
    possible = min(share * clock.now, seconds * step / 4)
    if possible > 8 * seconds:
        assert monitor.spent > 0.75 * possible
    if possible > 12 * seconds:
        assert monitor.spent > 0.9 * possible


def test_after_a_cut_there_is_more_time_until_it_suffices(clock, monkeypatch):
    slow = Slow(clock, 3.0, monkeypatch)
    monitor = FlatnessMonitor(None, TRACE, every=1, share=0.1)
    logged = []
    monitor.start()
    for step in range(1, 400):
        clock.now += 0.5
        if found := monitor(nn.Linear(2, 2), step):
            logged.append(found)
    grown = [b for b in slow.budgets if b < 3.0]
    assert all(later >= module.MORE * first for first, later in pairwise(grown))
    # Numbers of measurements that were cut are not logged.
    assert 0 < len(logged) == len(slow.budgets) - len(grown)


def test_the_dearest_measure_leaves_the_others_whole(clock, monkeypatch):
    needs = {TRACE: 8.0, "spectral-norm-product": 0.5}
    data = torch.randn(3, 2).double(), torch.tensor([0, 1, 0])
    objective = fg.Objective(nn.Linear(2, 2).double(), data)
    whole = {request: fg.measure(objective, request) for request in needs}

    def slow(_: Any, request: str, budget: float, **__: Any) -> fg.Report:
        clock.now += min(budget, needs[request])
        enough = budget >= needs[request]
        return whole[request] if enough else cut_short(whole[request])

    monkeypatch.setattr(module, "measure", slow)
    monkeypatch.setattr(module, "Objective", lambda *_, **__: None)
    monitor = FlatnessMonitor(None, list(needs), every=1, share=0.1)
    names = []
    monitor.start()
    for step in range(1, 900):
        clock.now += 0.5
        names.append(list(monitor(nn.Linear(2, 2), step)))
    cheap, both = ["flatness/spectral-norm-product"], ["flatness/hessian-trace"]
    found = [one for one in names if one]
    assert found[:2] == [cheap, cheap]
    assert [*both, *cheap] in found
    assert all(
        list(one.measurements) == list(needs) for one in monitor.reports.values()
    )
    assert monitor.series().report().extras["measures"].keys() == needs.keys()


def test_a_run_without_time_says_what_the_monitor_looks_for():
    data = torch.randn(3, 2).double(), torch.tensor([0, 1, 0])
    objective = fg.Objective(nn.Linear(2, 2).double(), data)
    found = fg.measure(objective, TRACE, budget=1e-9)
    assert found[TRACE].message.startswith(CUT_SHORT)


def test_names_suit_every_logger(monkeypatch):
    data = torch.randn(3, 2).double(), torch.tensor([0, 1, 0])
    request = "riemannian-spectral-norm[metric=node]"
    monitor = FlatnessMonitor(data, request, **OFTEN)
    monitor.start()
    monitor._started -= 1e6
    name = "flatness/riemannian-spectral-norm.metric.node"
    assert monitor(nn.Linear(2, 2).double(), 1) == {}
    found = monitor(nn.Linear(2, 2).double(), 3)
    assert list(found) == [name, f"{name}.error"]
    # A step that comes again, as with accumulated gradients, is measured once.
    assert monitor(nn.Linear(2, 2).double(), 3) == {}


def test_an_interrupt_is_the_training_s(monkeypatch):
    def interrupted(objective: Any, *_: Any, **__: Any) -> fg.Report:
        return fg.measure(objective, TRACE).with_extras(budget={"interrupted": True})

    monkeypatch.setattr(module, "measure", interrupted)
    data = torch.randn(3, 2).double(), torch.tensor([0, 1, 0])
    monitor = FlatnessMonitor(data, TRACE, **OFTEN)
    monitor.start()
    monitor._started -= 1e6
    with pytest.raises(KeyboardInterrupt):
        monitor(nn.Linear(2, 2).double(), 3)


def test_compiled_models_are_unwrapped():
    model, compiled = nn.Linear(2, 2), nn.Module()
    # What torch.compile makes, without its compiler.
    compiled._orig_mod = model
    assert module.bare(nn.DataParallel(compiled)) is model


class Endless(IterableDataset):
    def __iter__(self):
        yield torch.zeros(2), 0


def test_data_without_indices_are_a_warning():
    monitor = FlatnessMonitor(first_samples(DataLoader(Endless()), 4), **OFTEN)
    monitor.start()
    monitor._started -= 1e6
    with pytest.warns(FlatnessWarning, match="give the callback data="):
        assert monitor(nn.Linear(2, 2), 3) == {}


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"every": 0}, "every= is 0"),
        ({"share": 0.0}, "share= is 0.0"),
        ({"share": 1.0}, "share= is 1.0"),
        ({"measures": "sharp"}, "the measure 'sharp' is not"),
        ({"options": {"volume-flatness": {}}}, "which was not asked for"),
    ],
)
def test_mistakes_are_told_before_training(given, sentence):
    with pytest.raises(OptionError, match=sentence):
        FlatnessMonitor(None, **given)
