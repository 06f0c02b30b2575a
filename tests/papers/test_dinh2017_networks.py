"""Dinh et al.: biases, convolutions, other networks, and ε-sharpness."""

from __future__ import annotations

import copy
import json
import math

import pytest
import torch

from flatgauge.symmetry.maps.chain import Chain
from papers.dinh2017 import derivatives, eigenvalues, epsilon, gradient_networks, orbit
from papers.dinh2017.claims import FINDINGS, finding
from papers.dinh2017.completeness import standing
from papers.dinh2017.network_findings import (
    epsilon_large,
    invariant_measures,
    orbit_runs,
    theorem1_networks,
)
from papers.dinh2017.networks import convolutional, mlp, normal
from papers.dinh2017.run import PAPER
from papers.dinh2017.verdicts import AGREES, DIFFERS
from papers.experiment import Context, Results
from papers.page import NOT_RUN
from papers.runner import ROOT
from papers.store import load

CHEAP = [
    "hessian-trace",
    "hessian-spectral-norm",
    "normalized-sharpness",
    "riemannian-spectral-norm[metric=node]",
]
QUICK = Context(True, None, torch.device("cpu"))
EXPECTED = json.loads((ROOT / "dinh2017" / "expected.json").read_text(encoding="utf-8"))


@pytest.fixture
def stored() -> Results:
    results = load(ROOT / "dinh2017" / "results", PAPER.runs(False), quick=False)
    return Results(copy.deepcopy(results.records))


@pytest.mark.parametrize("network", ["biases", "convolutions"])
@pytest.mark.parametrize("kind", ["layer", "node"])
def test_the_claims_hold_with_biases_and_convolutions(network, kind):
    settings = orbit.settings(True, kind, network)
    own = {
        "samples": 60,
        "epochs": 5,
        "exponents": [-1],
        "measures": CHEAP,
    }
    found = orbit.compute(QUICK, {**settings, **own})
    assert max(found["loss drift"], found["output drift"]) < 1e-13
    for row in found["measures"]:
        if row["claims"]:
            assert row["drift"] < 1e-9, row
        else:
            assert row["factor"] > 1.5, row


def test_every_hidden_bias_takes_the_cumulative_factor():
    model = mlp([2, 3, 3, 2], seed=0, bias=True)
    point = dict(model.named_parameters())
    factors = {
        name: float((tensor / point[name]).detach().mean())
        for name, tensor in orbit.moved(model, "layer", 4.0).items()
    }
    assert factors == pytest.approx(
        dict(zip(factors, (4, 4, 1, 4, 0.25, 1), strict=True))
    )


def test_convolutions_are_a_chain_of_the_declared_channels():
    model = convolutional(normal(4, 1, 8, 8, seed=0), [3, 5], seed=1, bias=True)
    layers = Chain.of(model).layers
    shapes = [tuple(model.get_parameter(layer.weight).shape) for layer in layers]
    assert shapes == [(3, 1, 3, 3), (5, 3, 3, 3), (10, 5)]
    assert all(layer.bias for layer in layers)


def test_theorem_1_in_every_kind_of_network():
    settings = {**gradient_networks.settings(True), "samples": 50}
    found = gradient_networks.compute(QUICK, settings)["networks"]
    names = [one["name"] for one in gradient_networks.NETWORKS]
    assert [one["network"] for one in found] == names
    for one in found:
        assert one["error"] < 1e-12
        assert one["loss change"] < 1e-12
        assert one["powers"] == pytest.approx([-1, -1], abs=1e-3)
    assert [one["pairs"] for one in found] == [1, 1, 1, 1, 1, 4, 4, 2, 1]


def test_a_gradient_that_does_not_grow_takes_the_verdict_away(stored):
    assert theorem1_networks(stored)[1] == AGREES
    stored["theorem1-networks"]["networks"][0]["powers"] = [-1.0, 0.0]
    assert theorem1_networks(stored)[1] == DIFFERS


def test_derivatives_along_the_orbit():
    found = derivatives.compute(QUICK, {**derivatives.settings(), "points": 1})
    for one in found["networks"].values():
        assert max(one["gradient"], one["hessian"]) < 1e-12


def test_derivatives_that_differ_take_the_verdict_away(stored):
    assert finding("derivatives", stored)[1] == AGREES
    stored["derivatives"]["networks"]["convolutions"]["hessian"] = 1.0
    assert finding("derivatives", stored)[1] == DIFFERS


def test_theorem_2_with_convolutions():
    (one,) = eigenvalues.compute(
        QUICK, eigenvalues.convolutions_at_zero_loss(7, [1, 2, 2], 2, [1])
    )["networks"]
    assert one["parameters"] == 18 + 36 + 4
    assert one["claimed"] == one["rank"] - 4
    assert one["claimed"] <= one["exact"] == one["counts"][-1]
    assert one["interlaced"]


def test_epsilon_sharpness_is_quadratic_at_a_minimum_and_large_beside_a_constant():
    settings = epsilon.settings(True)
    settings["images"] |= {"samples": 50, "hidden": [8], "epochs": 10}
    own = {"alphas": [1.0, 0.1], "exponents": [-3]}
    found = epsilon.compute(QUICK, {**settings, **own})
    for curve in found["networks"]["small"]["curves"]:
        (point,) = curve["points"]
        assert point["value"] == pytest.approx(point["quadratic"], rel=1e-2)
    (one,) = found["constant"]
    loss = found["networks"]["images"]["loss"]
    assert one["bound"] == pytest.approx((math.log(10) - loss) / (1 + loss))
    assert one["after"] >= one["bound"] > one["before"]


def test_a_ball_without_the_constant_network_takes_the_verdict_away(stored):
    assert epsilon_large(stored)[1] == AGREES
    stored["epsilon-sharpness"]["constant"][0]["after"] = 0.0
    assert epsilon_large(stored)[1] == DIFFERS


def test_an_invariant_measure_that_drifts_takes_the_verdict_away(stored):
    assert invariant_measures(stored)[1] == "does not hold"
    rows = stored[orbit_runs("convolutions")[1]]["measures"]
    next(r for r in rows if r["measure"] == "normalized-sharpness")["drift"] = 0.1
    assert invariant_measures(stored)[1] == DIFFERS


def test_the_list_of_everything_rests_on_known_claims(stored):
    known = {"reproduced", "in part", "refuted", "absent"}
    claimed = set()
    for item in EXPECTED["completeness"]:
        assert item["verdict"] in known
        assert item["why"]
        assert bool(item["claims"]) == (item["verdict"] != "absent")
        assert standing(item, stored) == item["verdict"]
        claimed |= set(item["claims"])
    assert claimed <= set(FINDINGS)
    assert set(FINDINGS) - claimed == {"radial-hessian"}


def test_an_item_stands_only_while_its_claims_do(stored):
    item = {"verdict": "reproduced", "claims": ["orbit-large", "derivatives"]}
    stored["derivatives"]["networks"]["convolutions"]["hessian"] = 1.0
    assert standing(item, stored) == DIFFERS
    del stored.records["derivatives"]
    assert standing(item, stored) == NOT_RUN
