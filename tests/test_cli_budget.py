"""Budgets, halves of the data and interrupts from the command line."""

from __future__ import annotations

import json
from functools import wraps

import pytest
from support.users import net

import flatgauge as fg
from flatgauge.cli import main
from flatgauge.cli.progress import ProgressBar
from flatgauge.deadline import Step
from flatgauge.measures.registry import find_measure

__all__ = ["net"]

NAMES = ["--measure", "fisher-rao-norm", "--measure", "hessian-trace"]


def test_a_budget_and_halves_of_the_data(net, tmp_path, capsys):
    command = ["measure", f"{net}:model", f"{net}:batches", *NAMES]
    command += [
        "--budget",
        "1h",
        "--resamples",
        "2",
        "--json",
        str(tmp_path / "a.json"),
    ]
    assert main(command) == 0
    out = capsys.readouterr().out
    assert "(data)" in out
    assert "of 1 h 0 min." in out
    report = fg.Report.from_json(tmp_path / "a.json")
    assert report.extras["budget"]["seconds"] == 3600
    for one in report.measurements.values():
        assert one.data_uncertainty > 0
        assert one.details["resamples"]["splits"] == 2


@pytest.mark.parametrize("budget", ["soon", "0s"])
def test_other_budgets_are_bad_input(net, capsys, budget):
    command = ["measure", f"{net}:model", f"{net}:batches", *NAMES]
    assert main([*command, "--budget", budget]) == 2
    assert "give seconds, or a time such as '90s'" in capsys.readouterr().err


@pytest.mark.filterwarnings("default::flatgauge.schedule.InterruptedWarning")
def test_an_interrupt_writes_what_is_finished(net, tmp_path, capsys, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    info = find_measure("hessian-trace")
    interrupted = wraps(info.function)(interrupt)
    monkeypatch.setitem(vars(info), "function", interrupted)
    path = tmp_path / "a.json"
    command = ["measure", f"{net}:model", f"{net}:batches", *NAMES]
    assert main([*command, "--json", str(path)]) == 130
    shown = capsys.readouterr()
    assert "interrupted after" in shown.out
    assert "note: interrupted: what was finished is in the report" in shown.err
    found = json.loads(path.read_text())["measurements"]
    assert found["fisher-rao-norm"]["status"] == "EXACT"
    assert found["hessian-trace"]["status"] == "NOT_CONVERGED"


def test_the_bar_says_how_far_a_measure_is():
    bar = ProgressBar()
    bar("hessian-trace", 1, 3)
    bar.planned({"hessian-trace": 100.0}, float("inf"))
    bar.inside(Step("hessian-trace", 8, 64, 3.5, 0.25, 10.0, 30.0, float("inf")))
    (task,) = bar._bar.tasks
    assert task.description == (
        "hessian-trace: 8 of at most 64 products, 3.5 ± 0.2 so far, about 20 s to go"
    )
    assert (task.completed, task.total) == (1, 3)
