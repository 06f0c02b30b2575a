"""Tsuzuku et al.: the bounds, Appendices B and D, and what single sections claim."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from flatgauge.solvers.pac_bayes import risk_bound
from papers.experiment import Context
from papers.store import plain
from papers.tsuzuku2019 import declared
from papers.tsuzuku2019.bits import bits, growth
from papers.tsuzuku2019.bounds import bounds, deviation
from papers.tsuzuku2019.convexity import convexity
from papers.tsuzuku2019.convolution import convolution, convolutional, total
from papers.tsuzuku2019.network import data_of, held_out
from papers.tsuzuku2019.noise import noise, noise_profile, orders
from papers.tsuzuku2019.posteriors import GRID, posterior
from papers.tsuzuku2019.surrogate import surrogate
from papers.tsuzuku2019.unbounded import unbounded

QUICK = Context(True, None, torch.device("cpu"))
TINY = declared.digits([12], samples=200, epochs=10)


def settings_of(run) -> dict:
    return plain(run.settings)


def test_some_labels_are_random():
    settings = {**TINY, "random_labels": 0.5}
    _, true = data_of(QUICK, TINY)
    _, mixed = data_of(QUICK, settings)
    # A random label is the true one in one of ten cases.
    assert 0.35 < float((mixed != true).double().mean()) < 0.55
    assert torch.equal(mixed, data_of(QUICK, settings)[1])
    pixels, labels = held_out(QUICK, settings)
    assert len(pixels) == len(labels) == 1797 - 200


def test_the_terms_add_up_to_the_bound():
    networks = [("tiny", {**TINY, "bias": True})]
    settings = declared.bound_settings(True, networks) | {"draws": 20}
    (found,) = bounds(QUICK, plain(settings))["networks"]
    for kind, p in found["posteriors"].items():
        price = p["hyperprior"] + p["lambda_price"] + p["log_inverse_delta"]
        whole = risk_bound(
            p["posterior_error_bound"], p["kl"] + price, 1.0, p["lambda"], p["psi"]
        )
        assert p["value"] == pytest.approx(whole, rel=1e-12)
        # Built anew from the parts of the library, for draws on unseen images.
        assert p["rebuilt_kl"] == pytest.approx(p["kl"], rel=1e-9)
        assert p["C"] == pytest.approx(p["posterior_error"] - p["training_error"])
        assert p["unseen_error"] <= p["value"] < p["paper"]
        assert p["tuned_scales"] == (4 if kind == "matrix" else 12 + 64 + 10 + 12 + 22)
    psi = found["deviation"]
    assert 0 <= psi["found"] <= psi["tight"] < psi["printed"]


def test_psi_of_a_network_whose_error_is_known():
    """All outputs equal: argmax is class 0, wrong on three of four samples."""
    model = nn.Linear(2, 2, bias=False).double()
    data = (torch.zeros(4, 2).double(), torch.tensor([0, 1, 1, 1]))
    prior = {"weight": torch.ones(2, 2).double()}
    found = deviation(model, prior, data, 3.0, {"draws": 5, "seed": 0})
    one = 0.25 * math.exp(3 * 0.75 / 4) + 0.75 * math.exp(3 * (0.75 - 1) / 4)
    assert found["found"] == pytest.approx(4 * math.log(one))
    assert found["least_risk"] == found["largest_risk"] == 0.75


def test_posteriors_of_every_kind():
    weight = torch.tensor([[1.0, 2.0, -3.0], [0.5, 1.0, 4.0]], dtype=torch.float64)
    point, h = {"w": weight}, {"w": torch.full_like(weight, 0.1)}
    found = {
        kind: posterior(kind, point, h, 50.0) for kind in ("matrix", "node", "entry")
    }
    assert [found[k].tuned for k in found] == [1, 5, 6]
    assert found["matrix"].price == pytest.approx(math.log(1025))
    # (11) with its ½: σ² = √(‖W‖² / (λ Σh)).
    square = float(weight.square().sum())
    expected = (square / (50 * 0.6)) ** 0.25
    torch.testing.assert_close(
        found["matrix"].deviation["w"], torch.full_like(weight, expected)
    )
    (scale,) = {float(one) for one in found["matrix"].prior["w"].flatten()}
    steps = math.log(scale) / math.log(GRID.ratio)
    assert steps == pytest.approx(round(steps))
    # Each entry its own: s = |W| / √(λ h).
    torch.testing.assert_close(
        found["entry"].deviation["w"], (weight.abs() / math.sqrt(5)).sqrt()
    )


def test_description_lengths():
    network = declared.digits([], samples=200, epochs=20)
    settings = {"network": network, "shapes": [[16, 2], [32, 2]], "seed": 1}
    settings |= {"factors": [1.0, 64.0], "draws": 4}
    first, last = bits(QUICK, settings)["networks"]
    tuned = {kind: one["tuned"] for kind, one in first["kinds"].items()}
    weights = 64 * 16 + 16 * 16 + 16 * 10
    assert tuned == {"matrix": 3, "node": 80 + 32 + 26, "entry": weights}
    assert first["labels_alone"] == pytest.approx(200 * math.log2(10))
    for one in first["kinds"].values():
        parts = one["hyperprior"] + one["weights"] + one["labels"]
        assert one["total"] == pytest.approx(parts)
        price = math.log2(one["grid"])
        assert one["hyperprior"] == pytest.approx(one["tuned"] * price)
        # σ_P = σ_Q is not the best prior of a fine grid.
        assert one["at_m"]["grid"] == 1025
        assert one["at_m"]["weights"] < one["at_m"]["weights_equal"]
    assert growth(first, last, "matrix") == 0
    assert 0 < growth(first, last, "node") < 1 < growth(first, last, "entry") < 2


def test_appendix_b():
    settings = settings_of(declared.convexity_run(True))
    pairs = convexity(QUICK, settings)["pairs"]
    for one in pairs:
        assert max(one["hessian_error"], one["form_error"]) < 1e-12
        assert one["nullity"] == one["components"]
        assert (one["far"] < 0) == (one["negative_curvatures"] > 0)
        if not one["negative_curvatures"]:
            assert min(one["least"], one["least_as_printed"]) > -1e-12
            assert one["least_in_sigma"] < -1e-4
    assert any(one["negative_curvatures"] for one in pairs)
    assert any(one["components"] > 1 for one in pairs)


def test_convolutions():
    found = convolution(QUICK, settings_of(declared.convolution_run(True)))
    assert len(convolutional(found)) == 2
    for both in found["losses"].values():
        before, after = both["trained"], both["rescaled"]
        for rule in ("channels", "positions", "elementwise"):
            assert total(after, rule) == pytest.approx(total(before, rule), rel=1e-9)
        assert total(before, "minimized") == pytest.approx(total(before, "channels"))
        assert before["library"] == pytest.approx(total(before, "channels"), rel=1e-9)
        assert total(before, "elementwise") < total(before, "positions")
        assert total(before, "positions") < total(before, "channels")
        assert total(before, "channels") < total(before, "matrix")
        assert after["trace"] > 2 * before["trace"]


def test_norms_grow_without_bound():
    settings = settings_of(declared.unbounded_run(False))
    steps = unbounded(QUICK, {**settings, "network": TINY})["steps"]
    first, last = steps[0], steps[-1]
    for key in ("first", "second"):
        assert last[key]["spectral"] > 1e3 * first[key]["spectral"]
        assert 0 < last[key]["above_one"] < 1e-5
    for one in steps:
        assert one["row_curvature"] == pytest.approx(one["alpha"] ** 2, rel=1e-8)
        for name in ("loss", "normalized-sharpness"):
            assert one[name] == pytest.approx(first[name], rel=1e-8)
    growing = ("bartlett", "neyshabur", "matrix-normalized-sharpness", "hessian-trace")
    assert all(last[name] > 100 * first[name] for name in growing)


def test_the_normalized_loss_and_its_blind_spot():
    settings = settings_of(declared.surrogate_run())
    found = surrogate(QUICK, {**settings, "network": {**TINY, "bias": True}})
    assert not any(found["changed_predictions"].values())
    plain_loss, normalized = found["losses"].values()
    base = normalized["trained"]
    for point, one in normalized.items():
        assert one["loss"] == pytest.approx(base["loss"], rel=1e-12)
        assert one["centred"] == pytest.approx(base["centred"], rel=1e-9)
        same = point != "shifted by the hidden layer"
        assert (abs(one["sharpness"] / base["sharpness"] - 1) < 1e-9) == same
    ratio = plain_loss["scaled"]["sharpness"] / plain_loss["trained"]["sharpness"]
    assert abs(ratio - 1) > 0.01


def test_62_for_several_lambdas():
    settings = {"lambdas": [50.0, 5e5], "steps": 60, "draws": 40}
    network = declared.digits([8], samples=60, epochs=5)
    found = noise(QUICK, {**settings, "label": "tiny", "network": network})
    few, many = found["values"]
    assert many["second_order"] == pytest.approx(few["second_order"] / 100)
    assert many["predicted"] == pytest.approx(many["second_order"] / math.sqrt(2))
    # The less noise, the nearer is the second order to the whole loss.
    assert abs(many["direct"] - many["predicted"]) < 6 * many["error"]
    other = {"label": "other", "values": [{"direct": 0.0}, {"direct": 1e9}]}
    assert orders([found, other], "direct") == [["other", "tiny"], ["tiny", "other"]]


def test_62_is_not_convex_under_a_bounded_loss():
    run = next(r for r in declared.noise_runs(True) if r.name == "noise-profile")
    found = noise_profile(QUICK, settings_of(run))
    plain_loss, bounded = found["profiles"]
    assert min(one["score"] for one in bounded["lambdas"]) < -4
    assert bounded["lambdas"][0]["minima_inside"] == 0
    assert plain_loss["rise"] == sorted(plain_loss["rise"])
    for one in found["profiles"]:
        lam = one["lambdas"][1]
        curve = [
            r + p / lam["lambda"]
            for r, p in zip(one["rise"], one["penalty"], strict=True)
        ]
        assert lam["curve"] == pytest.approx(curve)
