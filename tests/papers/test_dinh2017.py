"""Dinh et al.: known answers of each experiment, and what the stored results say."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch

import flatgauge as fg
from flatgauge.vectors import norm
from papers.dinh2017 import (
    eigenvalues,
    gradient,
    orbit,
    radial,
    ranking,
    representation,
    smallest,
    volume,
)
from papers.dinh2017.claims import FINDINGS
from papers.dinh2017.networks import mlp, normal, settle
from papers.dinh2017.reparametrized import Reparametrized
from papers.dinh2017.representation_findings import likelihood_spread
from papers.dinh2017.run import PAPER
from papers.dinh2017.verdicts import DIFFERS
from papers.dinh2017.words import verdict
from papers.experiment import Context, Results
from papers.runner import ROOT
from papers.store import load, plain

HOME = ROOT / "dinh2017"
QUICK = Context(True, None, torch.device("cpu"))
EXPECTED = json.loads((HOME / "expected.json").read_text(encoding="utf-8"))
KNOWN = EXPECTED["known"]


@pytest.fixture(scope="module")
def stored() -> Results:
    return load(HOME / "results", PAPER.runs(False), quick=False)


def test_radial_map():
    settings = {**radial.settings(), "points": 20, "dimensions": [3], "grid": 3}
    found = radial.compute(QUICK, settings)
    errors = found["checks"]["3"]
    assert max(errors[name] for name in ("moved", "inverse", "determinant")) < 1e-13
    assert errors["jacobian"] < 1e-8
    assert errors["scalar"] > 0.5
    assert found["hessian"]["factor"] == pytest.approx(49 / 9)
    assert found["hessian"]["error at a minimum"] < 1e-12
    assert found["hessian"]["error elsewhere"] < 1e-12
    middle_across, middle_up = found["lines"]["horizontal"][1]
    assert set(middle_up) == {0.0}
    assert middle_across == sorted(middle_across)


def test_a_wrapped_network_is_the_same_at_the_centre_and_outside_the_ball():
    model, inputs = mlp([3, 4, 2], seed=0), normal(5, 3, seed=1)
    wrapped = Reparametrized(model, rhat=0.1, delta=0.5, rho=0.3)
    torch.testing.assert_close(wrapped(inputs), model(inputs), rtol=0, atol=0)
    with torch.no_grad():
        for one in (model, wrapped.network):
            next(one.parameters()).add_(1.0)
    torch.testing.assert_close(wrapped(inputs), model(inputs), rtol=1e-13, atol=1e-13)
    with torch.no_grad():
        for one in (model, wrapped.network):
            next(one.parameters()).sub_(0.95)
    assert float((wrapped(inputs) - model(inputs)).detach().abs().max()) > 1e-3


TINY_ORBIT = {"hidden": [16], "samples": 100, "epochs": 40, "exponents": [-1, 1]}


@pytest.mark.parametrize("kind", ["layer", "node"])
def test_along_an_orbit_only_the_claims_hold(kind):
    settings = {**orbit.settings(True, kind), **TINY_ORBIT}
    found = orbit.compute(QUICK, settings)
    rows = {row["measure"]: row for row in found["measures"]}
    assert max(found["loss drift"], found["output drift"]) < 1e-13
    for row in rows.values():
        if row["claims"]:
            assert row["drift"] < 1e-9, row
    moving = {"hessian-trace", "hessian-spectral-norm", "epsilon-sharpness"}
    if kind == "node":
        moving |= {
            "matrix-normalized-sharpness",
            "riemannian-spectral-norm[metric=layer]",
            "spectral-norm-product",
        }
    assert {name for name, row in rows.items() if row["factor"] > 2} == moving
    assert not any(rows[name]["claims"] for name in moving)


def test_ratios_of_logarithms_are_exponentials():
    assert orbit.ratio(1.0, 3.0, logarithmic=True) == pytest.approx(math.exp(2))
    assert orbit.ratio(2.0, 3.0, logarithmic=False) == 1.5
    assert orbit.ratio(None, 3.0, logarithmic=False) is None
    assert orbit.ratio(0.0, 3.0, logarithmic=False) is None


def test_factors_away_from_one():
    assert orbit.factor(0.25) == orbit.factor(4.0) == 4.0
    assert orbit.factor(0.0) == orbit.factor(-1.0) == math.inf


def test_smallest_trace():
    own = smallest.settings()
    found = smallest.compute(QUICK, {**own, "networks": own["networks"][1:2]})
    (one,) = found["networks"]
    assert one["found"] == pytest.approx(one["closed form"], rel=1e-12)
    assert one["measured there"] == pytest.approx(one["closed form"], rel=1e-12)
    assert one["closed form"] < one["trace"]
    assert 1 <= one["smallest of others"] < 1.1
    bounds = [
        one["lower bound"],
        one["smallest largest eigenvalue"],
        one["upper bound"],
    ]
    assert bounds == sorted(bounds)
    assert one["smallest largest eigenvalue"] <= one["largest eigenvalue"]


@pytest.mark.parametrize("side", [2, 4, 16, 256])
def test_volume_closed_form(side):
    known = KNOWN["volume"][str(side)]
    assert volume.closed_form(side, 0.02) == pytest.approx(known, rel=1e-14)


def test_what_rays_see_of_the_volume():
    seen = [volume.seen_from_one(side, 0.02, 10**5) for side in (2.0, 4.0, 256.0)]
    assert seen[2] == pytest.approx(KNOWN["rays"]["256"], abs=5e-4)
    assert seen[1] == pytest.approx(seen[2], rel=1e-6)
    assert seen[0] < volume.closed_form(2.0, 0.02)


@pytest.mark.slow
def test_estimates_of_the_volume():
    settings = {
        **volume.settings(True),
        "directions": 100,
        "sides": [4],
        "angles": 10**5,
    }
    found = volume.compute(QUICK, settings)
    (row,) = found["sides"]
    assert abs(row["sampled"] - row["closed form"]) < 4 * row["sampled error"] < 0.01
    assert abs(row["rays"] - row["rays by quadrature"]) < 4 * row["rays error"]
    assert row["rays"] < row["closed form"]
    counts, volumes = found["orbit"]["images"], found["orbit"]["volumes"]
    box = (2 * found["orbit"]["half width"]) ** 2
    assert volumes == pytest.approx([count * box for count in counts], rel=1e-9)


def test_theorem_1():
    found = gradient.compute(QUICK, gradient.settings(True))
    assert found["error"] < 1e-13
    limit = found["limit of alpha times norm"]
    assert limit == pytest.approx(found["first layer"], rel=1e-6)
    assert found["norms"][-1] > 1e3 * found["norms"][0]


def test_theorem_2_with_known_ranks():
    (one,) = eigenvalues.compute(
        QUICK, eigenvalues.at_zero_loss([2, 3, 3, 3], True, [3])
    )["networks"]
    assert {name: one[name] for name in KNOWN["ranks"]} == KNOWN["ranks"]
    assert one["counts"][0] == 0
    assert one["counts"][-1] == one["exact"]
    assert one["guaranteed"] == 14
    assert not one["interlaced"]


def test_theorem_2_at_a_trained_minimum():
    (one,) = eigenvalues.compute(
        QUICK, eigenvalues.settings([2, 3, 3, 3], False, [16])
    )["networks"]
    assert one["loss"] > 1e-4
    assert (one["rank"], one["claimed"], one["exact"]) == (18, 12, 15)
    assert one["claimed"] == one["guaranteed"]
    assert one["counts"][-1] == one["exact"]
    assert one["last nonzero"] > 1e5 * one["first zero"]
    assert one["interlaced"]


def test_a_point_that_is_not_critical_is_not_counted():
    settings = {**eigenvalues.settings([2, 3, 2], False, [1]), "steps": 0}
    (one,) = eigenvalues.compute(QUICK, settings)["networks"]
    assert not one["critical"]
    assert "rank" not in one


def test_settling_reaches_the_minimum_of_a_linear_layer():
    inputs, targets = normal(20, 3, seed=0), normal(20, 2, seed=1)
    objective = fg.Objective(mlp([3, 2], seed=2), (inputs, targets), loss="mse")
    settled = settle(objective, steps=5)
    assert float(norm(settled.gradient())) < 1e-13
    exact = torch.linalg.lstsq(inputs, targets).solution.T
    torch.testing.assert_close(settled.parameters["0.weight"], exact)


def test_two_minima_change_their_ranking():
    settings = {**ranking.settings(True), "hidden": 5, "samples": 60}
    names = ["hessian-spectral-norm", "riemannian-spectral-norm[metric=layer]"]
    found = ranking.compute(QUICK, {**settings, "measures": names})
    flat, sharp = found["flat"], found["sharp"]
    before, after = (
        [ranking.spectral_norm(found[time][name]) for name in (flat, sharp)]
        for time in ("before", "after")
    )
    assert before[0] < before[1]
    assert after[0] == pytest.approx(2 * before[1], rel=1e-6)
    assert after[1] == pytest.approx(before[1], rel=1e-9)
    moved, kept = (found[time][flat][names[1]]["value"] for time in ("after", "before"))
    assert moved / kept == pytest.approx(found["factor"], rel=1e-6)
    for network in found["networks"].values():
        assert network["output change"] < 1e-13


def test_representations_move_likelihoods_together():
    settings = {**representation.settings(True), "neighbours": [5]}
    found = plain(representation.compute(QUICK, settings))
    records = {"representation": {"result": found}}
    assert likelihood_spread(Results(records)) < 1e-10
    for model in found["models"]:
        for kind, change in found["log determinants"].items():
            shift = model["pixels"]["log-likelihood"] - model[kind]["log-likelihood"]
            assert shift == pytest.approx(change, rel=1e-9, abs=1e-12)
    regression, nearest = found["models"]
    assert nearest["pixels"]["lead"] > 0 > nearest["whitened"]["lead"]
    gap = (
        regression["pixels"]["mean squared error"]
        - nearest["pixels"]["mean squared error"]
    )
    assert nearest["pixels"]["lead"] == pytest.approx(gap, rel=1e-9)


def test_an_image_is_not_its_own_neighbour():
    upper = torch.tensor([[0.0], [1.0], [3.0], [0.9]], dtype=torch.float64)
    assert representation.nearest(upper, 3, 1).tolist() == [[1], [0], [1], [1]]


def test_whitening_whitens():
    factor = normal(4, 4, seed=3)
    covariance = factor @ factor.T + torch.eye(4, dtype=torch.float64)
    maps = representation.representations(covariance)
    white = maps["whitened"] @ covariance @ maps["whitened"].T
    torch.testing.assert_close(white, torch.eye(4, dtype=torch.float64))
    standard = maps["standardized"] @ covariance @ maps["standardized"].T
    torch.testing.assert_close(standard.diagonal(), torch.ones(4, dtype=torch.float64))


def test_every_claim_has_a_finding_and_a_run():
    assert [claim["id"] for claim in EXPECTED["claims"]] == list(FINDINGS)
    names = {run.name for run in PAPER.runs(False)}
    assert {run for needed, _ in FINDINGS.values() for run in needed} <= names
    assert names == {run.name for run in PAPER.runs(True)}


def test_the_stored_results_are_complete_and_agree(stored):
    assert set(stored) == {run.name for run in PAPER.runs(False)}
    verdicts = {name: find(stored)[1] for name, (_, find) in FINDINGS.items()}
    assert DIFFERS not in verdicts.values(), verdicts


def test_the_page_is_made_of_the_stored_results(stored):
    assert verdict(stored) in PAPER.page(stored, EXPECTED)


def test_a_result_that_differs_takes_the_verdict_away(stored):
    records = copy.deepcopy(stored.records)
    records["orbit-layer"]["result"]["output drift"] = 0.1
    page = PAPER.page(Results(records), EXPECTED)
    assert "The theorems are right." not in page
    assert f"| {DIFFERS} |" in page
    del records["ranking"]
    assert "Not run: ranking." in PAPER.page(Results(records), EXPECTED)


def test_every_figure_is_drawn_and_small(stored, tmp_path):
    PAPER.figures(stored, tmp_path)
    drawn = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    kept = {path.name: path.read_bytes() for path in (HOME / "figures").iterdir()}
    assert drawn.keys() == kept.keys()
    assert max(map(len, kept.values())) < 200_000
    assert all(text.startswith(b"<?xml") for text in drawn.values())
