"""Stored results against today's: what agrees, what is left out, what is said."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.synthetic_paper import PAPER, descend, runs

from papers import compare
from papers.experiment import Context, Paper, Run, Tolerance
from papers.runner import main

CPU = Context(quick=False, data=None, device=torch.device("cpu"))


def run(paper: Paper, *words: object) -> int:
    with pytest.raises(SystemExit) as stop:
        main(paper, [str(word) for word in words])
    assert isinstance(stop.value.code, int)
    return stop.value.code


@pytest.fixture
def folder(tmp_path):
    assert run(PAPER, "--out", tmp_path) == 0
    return tmp_path


def keys(stored, today, tolerances=None) -> list[str]:
    return [one.key for one in compare.differences(stored, today, tolerances or {})]


def test_numbers_agree_within_the_tolerance_and_the_rest_must_be_equal():
    stored = {"a": [1.0, 0.0, None], "b": {"c": "flat", "d": True, "e": 12}}
    assert keys(stored, stored) == []
    close = {"a": [1.0 + 5e-7, 5e-9, None], "b": {"c": "flat", "d": True, "e": 12}}
    assert keys(stored, close) == []
    other = {"a": [1.0 + 2e-6, 2e-8, 1.0], "b": {"c": "sharp", "d": 1, "e": 13}}
    assert keys(stored, other) == ["a[0]", "a[1]", "a[2]", "b.c", "b.d", "b.e"]


def test_what_is_missing_on_one_side_differs():
    assert keys({"a": [1, 2]}, {"a": [1]}) == ["a[1]"]
    assert keys({"a": 1}, {"a": 1, "b": None}) == ["b"]


def test_the_innermost_tolerance_decides_and_none_is_not_compared():
    tolerances = {"out": None, "counts": Tolerance(absolute=1.0), "in": Tolerance(0.1)}
    stored = {"out": 1, "counts": {"n": 78, "in": 17.0}}
    assert keys(stored, {"out": 2, "counts": {"n": 77, "in": 16.0}}, tolerances) == []
    moved = {"out": 2, "counts": {"n": 75, "in": 15.0}}
    assert keys(stored, moved, tolerances) == ["counts.in", "counts.n"]


def test_what_is_left_out_says_why():
    one = Run("one", {}, descend)
    record = {"provenance": {"device": "cpu"}, "times": {"seconds": 5.0}}
    assert compare.left_out(one, record, CPU) == ""
    assert "it took 5 s" in compare.left_out(one, record, CPU, limit=4.0)
    assert "--data" in compare.left_out(replace(one, needs=("data",)), record, CPU)
    assert "processor" in compare.left_out(replace(one, repeats=False), record, CPU)
    record["provenance"]["device"] = "NVIDIA H200"
    assert "NVIDIA H200" in compare.left_out(one, record, CPU)


def test_the_same_code_gives_what_is_stored_and_writes_nothing(folder, capsys):
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    capsys.readouterr()
    assert run(PAPER, "--compare", "--out", folder) == 0
    lines = capsys.readouterr().out.splitlines()
    names = ["first", "second", "third", "fourth"]
    assert [line.split(" (")[0] for line in lines] == [
        f"synthetic {name}: as stored" for name in names
    ]
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before


def test_another_number_is_one_sentence_that_names_it(folder, capsys):
    path: Path = folder / "results" / "second.json"
    record = json.loads(path.read_text())
    kept = record["result"]["losses"][3]
    record["result"]["losses"][3] = 56.03
    path.write_text(json.dumps(record))
    capsys.readouterr()
    assert run(PAPER, "--compare", "--out", folder, "--only", "second") == 1
    assert capsys.readouterr().err == (
        "synthetic second: failed: losses[3] is stored as 56.03, but today's code gives "
        f"{kept:.10g}: mend the code, or raise the run's revision and make it again.\n"
    )


def test_another_revision_and_a_missing_result_fail(folder, capsys):
    def raised(quick: bool) -> list[Run]:
        return [replace(one, revision=2) for one in runs(quick)]

    (folder / "results" / "third.json").unlink()
    assert run(replace(PAPER, runs=raised), "--compare", "--out", folder) == 1
    said = capsys.readouterr().err
    assert said.count("is of revision 1 of the run, which is now at 2: make it") == 3
    assert "third.json' is missing: make it again." in said


def test_a_raised_revision_is_made_again(folder, capsys):
    def raised(quick: bool) -> list[Run]:
        return [replace(one, revision=2) for one in runs(quick)]

    capsys.readouterr()
    assert run(replace(PAPER, runs=raised), "--out", folder, "--only", "first") == 0
    assert "which is now at 2, so it is made again" in capsys.readouterr().out
    assert json.loads((folder / "results" / "first.json").read_text())["revision"] == 2


@pytest.mark.parametrize("option", ["--quick", "--page"])
def test_it_looks_at_full_results_only(option, tmp_path, capsys):
    assert run(PAPER, "--compare", option, "--out", tmp_path) == 2
    assert "leave --quick and --page out" in capsys.readouterr().err
