"""The completeness tables: verdicts from results, and nothing of a paper forgotten."""

from __future__ import annotations

import importlib
import json

import pytest

from papers.completeness import (
    ABSENT,
    OPEN,
    REPRODUCED,
    VERDICTS,
    Check,
    completeness,
    judged,
    verdict_on,
)
from papers.experiment import Results
from papers.page import NOT_RUN
from papers.runner import ROOT
from papers.store import load

PAGES = {
    path.parent.name: json.loads(path.read_text(encoding="utf-8"))
    for path in ROOT.glob("*/expected.json")
    # Dinh et al.'s page has verdicts on claims instead, with tests of its own.
    if path.with_name("readme.py").exists()
    and "completeness" in json.loads(path.read_text(encoding="utf-8"))
}


def made(value: float) -> Results:
    return Results({"one": {"result": {"value": value}}})


def test_a_verdict_follows_from_the_result():
    check = Check(("one",), lambda found: (judged(found["one"]["value"] > 0), "words"))
    entry = {"where": "(1)", "what": "it is positive", "check": "positive"}
    checks = {"positive": check}
    assert verdict_on(entry, checks, made(1.0)) == (REPRODUCED, "words")
    assert verdict_on(entry, checks, made(-1.0))[0] == OPEN
    assert verdict_on(entry, checks, Results({}))[0] == NOT_RUN
    absent = {"where": "(2)", "what": "else", "why": "it needs a GPU"}
    assert verdict_on(absent, checks, made(1.0)) == (ABSENT, "it needs a GPU")
    text = completeness([entry, absent], checks, made(1.0))
    assert "| (1) | it is positive | reproduced | words |" in text
    assert "Of 2 entries: 1 reproduced, 0 in part, 0 refuted, 1 absent." in text


@pytest.mark.parametrize("name", sorted(PAGES))
def test_stored_results_bear_out_every_verdict(name):
    run = importlib.import_module(f"papers.{name}.run")
    checks = importlib.import_module(f"papers.{name}.readme").CHECKS
    results = load(ROOT / name / "results", run.PAPER.runs(False), quick=False)
    entries = PAGES[name]["completeness"]
    for entry in entries:
        verdict, words = verdict_on(entry, checks, results)
        assert verdict in VERDICTS, (entry, verdict, words)
        assert words
    assert {e["check"] for e in entries if "check" in e} == set(checks)
