"""The pieces of a page."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.synthetic_paper import runs

from papers.experiment import Results
from papers.page import agrees, number, provenance, run_again, side_by_side, table


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.000123456, "0.0001235"),
        (123456.0, "1.235e+05"),
        (3, "3"),
        (True, "yes"),
        (None, "–"),
        ([1, 2.5], "1, 2.5"),
        ("flat", "flat"),
    ],
)
def test_numbers(value, shown):
    assert number(value) == shown


def test_a_table():
    text = "| a | b |\n| --- | --- |\n| 1 | x\\|y |\n"
    assert table(["a", "b"], [[1, "x|y"]]) == text


def test_side_by_side():
    expected = {
        "right": 1.0,
        "near": {"value": 1.0, "tolerance": 0.1, "note": "read off a plot"},
        "wrong": 1.0,
        "explained": 1.0,
        "absent": 1.0,
    }
    found = {"right": 1.001, "near": 1.09, "wrong": 1.09, "explained": 2.0}
    lines = side_by_side(expected, found, {"explained": "a misprint"}).splitlines()
    assert lines[2:] == [
        "| right | 1 | 1.001 | agrees |",
        "| near | 1 (read off a plot) | 1.09 | agrees |",
        "| wrong | 1 | 1.09 | differs |",
        "| explained | 1 | 2 | a misprint |",
        "| absent | 1 | not run | not run |",
    ]


@pytest.mark.parametrize(
    ("expected", "found", "same"),
    [
        (1.0, 1.009, True),
        (1.0, 1.011, False),
        (0.0, 1e-9, False),
        (1.0, None, False),
        ([1, 2], [1, 2], True),
        ([1, 2], [1], False),
        ("flatter", "sharper", False),
        (True, True, True),
    ],
)
def test_agreement(expected, found, same):
    assert agrees(expected, found, 0.01) is same


def record(device: str, seconds: float, minute: int = 0) -> dict:
    facts = {"flatgauge": "1", "torch": "2", "python": "3", "commit": "abc"}
    times = {"seconds": seconds, "finished": f"2026-01-01T12:{minute:02}:00+00:00"}
    return {"provenance": facts | {"device": device}, "times": times}


def test_runs_at_the_same_time_count_once():
    spans = {"a": (60.0, 1), "b": (90.0, 2), "c": (30.0, 2), "d": (60.0, 9)}
    records = {name: record("H200", *span) for name, span in spans.items()}
    text = provenance(Results(records))
    # From 12:00:00 to 12:02:00, and the minute before 12:09.
    assert "180 s (several runs at a time, 240 s in all) on H200" in text


def test_provenance_adds_the_times_of_each_device():
    records = {"first": record("cpu", 1.0), "second": record("cpu", 2.0, minute=1)}
    text = provenance(Results(records | {"third": record("H200", 4.0)}))
    assert "flatgauge 1 (commit abc), torch 2 and Python 3" in text
    assert "4.0 s on H200, 3.0 s on cpu" in text
    assert "Nothing has been run" in provenance(Results({}))


def test_the_last_section_names_commands_and_what_was_not_run():
    text = run_again("synthetic", runs(False), Results({"first": record("cpu", 1.0)}))
    assert "flatgauge papers synthetic --out NEW\n" in text
    assert "| first | 1.0 | cpu |" in text
    assert "| second | not run |  |" in text


def test_the_last_section_names_the_data_and_the_gpu():
    first = replace(runs(False)[0], needs=("data",))
    text = run_again("synthetic", [first], Results({"first": record("H200", 1.0)}))
    assert "flatgauge papers synthetic --data DIR --device cuda --out NEW\n" in text
    assert "`DIR` holds `mnist/`" in text
