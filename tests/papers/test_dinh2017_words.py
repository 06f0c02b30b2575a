"""Dinh et al.: the sentences of the page change with the numbers."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from papers.dinh2017 import words
from papers.dinh2017.coordinate_tables import kept_words
from papers.dinh2017.findings import small
from papers.dinh2017.ranking import fates, order
from papers.dinh2017.representation_findings import representation_error
from papers.dinh2017.run import PAPER
from papers.dinh2017.verdicts import AGREES, DIFFERS
from papers.experiment import Results
from papers.runner import ROOT
from papers.store import load

NAME = "matrix-normalized-sharpness"


@pytest.fixture
def stored() -> Results:
    results = load(ROOT / "dinh2017" / "results", PAPER.runs(False), quick=False)
    return Results(copy.deepcopy(results.records))


def one(value: float | None, uncertainty: float | None = None, status: str = "EXACT"):
    return {"value": value, "uncertainty": uncertainty, "status": status}


def two_minima(flat: list[Any], sharp: list[Any]) -> dict[str, Any]:
    times = ("before", "after")
    places = {
        time: {"low": {NAME: low}, "high": {NAME: high}}
        for time, low, high in zip(times, flat, sharp, strict=True)
    }
    return {"flat": "low", "sharp": "high", **places}


@pytest.mark.parametrize(
    ("flat", "sharp", "fate"),
    [
        ([one(78.6), one(161.5)], [one(84.8), one(84.8)], "swapped"),
        (
            [one(78.6), one(161.5)],
            [one(84.8), one(675.8)],
            "not swapped, value changed",
        ),
        (
            [one(78.6), one(161.5)],
            [one(84.8), one(675.8, 1.0, "BIASED")],
            "not decided",
        ),
        (
            [one(78.6), one(161.5)],
            [one(84.8), one(150.0, 9.0, "ESTIMATED")],
            "not decided",
        ),
        ([one(78.6), one(78.6)], [one(84.8), one(84.8)], "stays"),
        ([one(78.6), one(None)], [one(84.8), one(84.8)], "does not apply"),
    ],
)
def test_a_ranking_is_told_from_both_values_in_both_coordinates(flat, sharp, fate):
    assert fates(two_minima(flat, sharp), [NAME]) == {NAME: fate}


def test_an_order_needs_two_uncertainties():
    assert order(one(1.0), one(2.0)) == -1
    assert order(one(2.0, 0.1), one(1.0, 0.1)) == 1
    assert order(one(1.0, 0.5), one(2.0, 0.5)) is None


def test_outside_the_ball_every_stored_value_is_what_it_was(stored):
    found = stored["ranking"]
    before, after = (found[time][found["sharp"]] for time in ("before", "after"))
    for name, new in after.items():
        if new["value"] is not None:
            assert new["status"] in ("EXACT", "CONVERGED")
            assert new["value"] == pytest.approx(before[name]["value"], rel=1e-6)


def test_values_that_stay_are_named(stored):
    found = stored["ranking"]
    assert kept_words(found) == "None of those that have a value keeps it."
    flat = found["flat"]
    found["after"][flat][NAME] = found["before"][flat][NAME]
    assert kept_words(found).endswith(f"that have a value keep it: {NAME}.")
    assert "keeps it" not in words.radial(stored)


def test_standardizing_and_whitening_turn_a_ranking_around(stored):
    said, verdict = representation_error(stored)
    assert verdict == AGREES
    assert "standardizing does so for 4, whitening does so for 4, 5" in said
    assert "Standardizing and whitening" in words.representations(stored)


def test_a_ranking_that_only_whitening_turns_around_is_told_so(stored):
    for model in stored["representation"]["models"]:
        if model["neighbours"] == 4:
            model["standardized"]["lead"] = 0.0
    assert representation_error(stored)[1] == "agrees for whitening only"
    assert "only whitening turned" in words.representations(stored)


@pytest.mark.parametrize(("lead", "verdict"), [(-1.0, AGREES), (1.0, DIFFERS)])
def test_the_verdict_on_representations_follows_the_leads(stored, lead, verdict):
    for model in stored["representation"]["models"][1:]:
        model["pixels"] |= {"lead": 1.0, "standard error of the lead": 0.1}
        for kind in ("standardized", "whitened"):
            model[kind] |= {"lead": lead, "standard error of the lead": 0.1}
    assert representation_error(stored)[1] == verdict


def test_lines_that_are_flat_are_named(stored):
    assert "spectral-norm-product (left)" in words.flat_lines(stored)
    rows = {row["measure"]: row for row in stored["orbit-layer"]["measures"]}
    rows["normalized-sharpness"]["drift"] = 0.5
    assert "normalized-sharpness (left) moves" in words.flat_lines(stored)
    assert "Against their claim" in words.invariant(stored)


def test_a_network_that_did_not_settle_takes_the_verdict_away(stored):
    assert small(stored)[1] != DIFFERS
    stored["smallest-trace"]["networks"][2]["critical"] = False
    assert small(stored)[1] == DIFFERS
