"""What every paper must keep: plain declarations, and pages that cope with gaps."""

from __future__ import annotations

import importlib
import json
from pathlib import Path

import pytest

from papers.experiment import Paper, Results
from papers.runner import ROOT, whole_page
from papers.store import load, plain

NAMES = sorted(path.parent.name for path in ROOT.glob("*/run.py"))
FILES = sorted(ROOT.rglob("*.py"))


def read(name: str) -> tuple[Paper, dict]:
    paper = importlib.import_module(f"papers.{name}.run").PAPER
    return paper, json.loads((ROOT / name / "expected.json").read_text())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("quick", [True, False], ids=["quick", "full"])
def test_runs_are_named_once_and_have_plain_settings(name, quick):
    paper, _ = read(name)
    runs = paper.runs(quick)
    assert paper.name == name
    assert len({run.name for run in runs}) == len(runs) > 0
    for run in runs:
        assert plain(run.settings) == plain(plain(run.settings))
        assert set(run.needs) <= {"data"}
        assert Path(run.name).name == run.name


@pytest.mark.parametrize("name", NAMES)
def test_page_and_figures_cope_without_any_run(name, tmp_path):
    paper, expected = read(name)
    paper.figures(Results({}), tmp_path)
    assert "not run" in paper.page(Results({}), expected).lower()


@pytest.mark.parametrize("name", NAMES)
def test_every_run_is_stored_and_the_committed_page_is_made_of_them(name):
    paper, _ = read(name)
    runs, home = paper.runs(False), ROOT / name
    results = load(home / "results", runs, quick=False)
    assert {run.name for run in runs if not run.long} <= set(results)
    text = whole_page(paper, runs, results, home / "expected.json", quick=False)
    assert text == (home / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_files_are_short_and_say_what_they_are(path):
    text = path.read_text()
    assert text.startswith('"""')
    assert len(text.splitlines()) <= 300
