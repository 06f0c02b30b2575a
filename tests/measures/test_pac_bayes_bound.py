from __future__ import annotations

import math

import pytest
import torch
from support.cases import CASES, known_network, mlp
from torch import nn

import flatgauge as fg
from flatgauge.errors import NotConvergedError, OptionError
from flatgauge.measures.registry import find_measure
from flatgauge.results import Measurement, Status
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.output import axes_of, scale_output
from flatgauge.symmetry.maps.permute import permute_units
from flatgauge.vectors import Params

NAME = "pac-bayes-bound"


def bound(objective: fg.Objective, seed: int = 0, **options) -> Measurement:
    return fg.measure(objective, NAME, options={NAME: options}, seed=seed)[NAME]


def value(found: Measurement) -> float:
    assert found.status is Status.ESTIMATED
    assert found.value is not None
    return found.value


def blobs(count: int = 400) -> fg.Objective:
    """Three well separated clusters, and a linear model that separates them."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(count) % 3
    centres = 6 * torch.eye(3, dtype=torch.float64)
    x = centres[y] + torch.randn(count, 3, generator=random, dtype=torch.float64)
    model = nn.Linear(3, 3, bias=False).double()
    model.weight.data = 2 * torch.eye(3, dtype=torch.float64)
    return fg.Objective(model, (x, y))


def moved(objective: fg.Objective, kind: str) -> fg.Objective:
    """A twin of the multilayer perceptron with weights 0, 2 and 4."""
    params, chain = objective.parameters, Chain.of(objective.model())
    if kind == "layer-rescale":
        return objective.at(_rescale(params, torch.tensor([3.7]), torch.tensor([0.21])))
    if kind == "node-rescale":
        hidden = torch.tensor([8.0, 0.1, 1.3, 0.02, 5.0, 2.0])
        return objective.at(_rescale(params, hidden, torch.tensor([0.3])))
    if kind == "permutation":
        order = torch.tensor([3, 0, 5, 1, 2, 4])
        return objective.at(permute_units(params, chain, 0, order))
    return objective.at(scale_output(params, axes_of(chain.layers[-1]), 3.7))


def _rescale(params: Params, first: torch.Tensor, second: torch.Tensor) -> Params:
    first, second = first.double(), second.double()
    return {
        "0.weight": params["0.weight"] * first[:, None],
        "0.bias": params["0.bias"] * first,
        "2.weight": params["2.weight"] * second[:, None] / first,
        "2.bias": params["2.bias"] * second,
        "4.weight": params["4.weight"] / second,
        "4.bias": params["4.bias"],
    }


@pytest.mark.parametrize("posterior", ["matrix", "node"])
def test_value_is_the_sum_of_its_terms(posterior: str):
    found = bound(CASES["mlp"].objective(), posterior=posterior)
    d = found.details
    rest = d["hyperprior"] + d["lambda_price"] + d["log_inverse_delta"] + d["psi"]
    total = d["posterior_error_bound"] + d["B"] + rest / d["lambda"]
    assert value(found) == pytest.approx(total, rel=1e-12)
    assert d["B"] == pytest.approx(d["kl"] / d["lambda"])
    assert d["kl"] == pytest.approx(sum(d["layers"].values()))
    assert d["bits"] == pytest.approx(d["kl"] / math.log(2))
    assert d["C"] == pytest.approx(d["posterior_error"] - d["training_error"])
    assert d["A_on_samples"] == -d["C"]
    assert d["log_inverse_delta"] == pytest.approx(math.log(2 / 0.05))
    assert d["hyperprior"] == pytest.approx(d["tuned_scales"] * math.log(1025))
    assert d["tighter_kl"] <= d["kl"] <= d["equal_variance_kl"]
    assert d["vacuous"] is True
    assert d["samples"] == 6
    assert found.uncertainty == pytest.approx(
        math.hypot(d["standard_error"], d["grid_resolution"])
    )


def test_tuned_scales_are_counted_as_the_posterior_needs():
    # Weights 6x4, 5x6, 3x5 and biases of 6, 5 and 3.
    objective = CASES["mlp"].objective()
    assert bound(objective, samples=2).details["tuned_scales"] == 6
    by_node = bound(objective, samples=2, posterior="node").details["tuned_scales"]
    assert by_node == (6 + 4) + (5 + 6) + (3 + 5) + 6 + 5 + 3


def test_one_tensor_by_hand():
    found = bound(blobs(), lam=500.0, samples=50, surrogate="objective", grid_ratio=2.0)
    h = sum(t.sum() for t in fg.hessian_diagonal(blobs()).values.values())
    variance = math.sqrt(12 / (500 * float(h)))
    kl = min(
        9 * k * math.log(2)
        - 4.5 * math.log(variance)
        + (12 + 9 * variance) / (2 * 4**k)
        - 4.5
        for k in range(-10, 10)
    )
    d = found.details
    assert d["kl"] == pytest.approx(kl, rel=1e-12)
    assert d["C_second_order"] == pytest.approx(float(h) * variance / 2)
    assert d["equal_variance_kl"] == pytest.approx(12 / (2 * variance))
    assert d["tighter_kl"] == pytest.approx(4.5 * math.log1p(12 / (9 * variance)))
    assert d["psi"] == 500.0**2 / (8 * 400)
    assert d["lambda"] == 500.0
    assert d["lambda_price"] == 0


def test_it_can_say_something():
    found = bound(blobs(), posterior="matrix")
    assert found.details["vacuous"] is False
    assert found.details["training_error"] <= value(found) < 0.5
    assert "0.95" in found.message
    assert value(bound(blobs(), psi="paper")) > value(found)
    assert value(bound(blobs(), delta=0.001)) > value(found)


def test_lambda_is_the_best_of_the_grid():
    found = bound(blobs())
    fixed = [value(bound(blobs(), lam=20.0 * 2**k)) for k in range(7)]
    price = found.details["lambda_price"] / found.details["lambda"]
    assert found.details["lambda_price"] == pytest.approx(math.log(7))
    assert value(found) - price == pytest.approx(
        min(fixed), abs=4 * (found.uncertainty or 0)
    )


@pytest.mark.parametrize("posterior", ["matrix", "node"])
def test_powers_of_the_ratio_move_nothing(posterior: str):
    names = ["A/ce", "A_layer_4/ce"]
    first, second = (bound(known_network(n), posterior=posterior) for n in names)
    assert value(second) == pytest.approx(value(first), rel=1e-6)


@pytest.mark.parametrize("posterior", ["matrix", "node"])
@pytest.mark.parametrize("loss", ["cross-entropy", "normalized-cross-entropy"])
def test_claims_hold_within_the_uncertainty(posterior: str, loss: str):
    objective = CASES["mlp"].objective(loss, count=30)
    before = bound(objective, posterior=posterior)
    claims = find_measure(NAME).invariant_to(before.options, before.loss)
    assert ("node-rescale" in claims) == (posterior == "node")
    assert claims >= {"layer-rescale", "permutation", "output-scale"}
    for kind in claims:
        after = bound(moved(objective, kind), posterior=posterior)
        allowed = 4 * math.hypot(before.uncertainty or 0, after.uncertainty or 0)
        assert abs(value(after) - value(before)) <= allowed, kind
        assert after.details["tighter_kl"] == pytest.approx(
            before.details["tighter_kl"], rel=1e-5
        )


def test_what_is_not_claimed_moves_it():
    objective = CASES["mlp"].objective(count=30)
    info = find_measure(NAME)
    by_matrix = bound(objective)
    assert "node-rescale" not in info.invariant_to(by_matrix.options)
    by_node = bound(objective, posterior="node", surrogate="objective", lam=30.0)
    assert "output-scale" not in info.invariant_to(by_node.options)
    rescaled = bound(moved(objective, "node-rescale"))
    assert abs(value(rescaled) / value(by_matrix) - 1) > 0.1
    objective = blobs()
    chain = Chain.of(objective.model())
    scaled = objective.at(
        scale_output(objective.parameters, axes_of(chain.layers[-1]), 0.1)
    )
    options = {"posterior": "node", "surrogate": "objective"}
    ratio = value(bound(scaled, **options)) / value(bound(objective, **options))
    assert abs(ratio - 1) > 0.1


def test_seeds_agree_within_the_uncertainty():
    first, second = bound(blobs()), bound(blobs(), seed=1)
    assert value(bound(blobs())) == pytest.approx(value(first), rel=1e-9)
    allowed = 4 * math.hypot(first.uncertainty or 0, second.uncertainty or 0)
    assert abs(value(first) - value(second)) <= allowed


@pytest.mark.parametrize(
    "case", ["lenet", "resnet", "tied-frozen", "attention", "tanh"]
)
@pytest.mark.parametrize("posterior", ["matrix", "node"])
def test_other_networks_have_finite_bounds(case: str, posterior: str):
    found = bound(CASES[case].objective(), posterior=posterior, samples=4)
    assert math.isfinite(value(found))
    assert set(found.details["layers"]) == set(CASES[case].objective().parameters)


def test_dead_units_and_zero_tensors_have_finite_bounds():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = mlp(4, 6, 3).double()
    model[0].bias.data.zero_()
    model[0].weight.data[1] = 0
    model[2].weight.data[:, 2] = 0
    data = CASES["mlp"].data()
    for posterior in ("matrix", "node"):
        found = bound(fg.Objective(model, data), posterior=posterior, samples=4)
        assert math.isfinite(value(found))
        assert found.details["layers"]["0.bias"] == pytest.approx(0, abs=1e-9)


def test_where_it_does_not_apply_it_says_why():
    for objective, reason in [
        (CASES["mlp"].objective("mse"), "classification"),
        (CASES["gpt"].objective(), "several targets"),
        (CASES["resnet-train"].objective(), "mode='eval'"),
    ]:
        found = bound(objective)
        assert found.status is Status.NOT_APPLICABLE
        assert found.value is None
        assert reason in found.message
    with pytest.raises(NotConvergedError, match="classification"):
        fg.measure(CASES["mlp"].objective("mse"), NAME, strict=True)


@pytest.mark.parametrize(
    "options",
    [
        {"posterior": "row"},
        {"delta": 0.0},
        {"lam": -1.0},
        {"samples": 1},
        {"cap": 0.0},
        {"psi": "loose"},
        {"grid_ratio": 0.5},
        {"surrogate": "margin"},
    ],
)
def test_bad_options_are_refused(options: dict):
    with pytest.raises(OptionError, match=next(iter(options))):
        bound(blobs(), **options)
