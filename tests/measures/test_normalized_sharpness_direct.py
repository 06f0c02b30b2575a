from __future__ import annotations

import math
from functools import cache

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

NAME = "normalized-sharpness-direct"


def direct(objective: fg.Objective, seed: int = 0, **options) -> Measurement:
    return fg.measure(objective, NAME, options={NAME: options}, seed=seed)[NAME]


def value(found: Measurement) -> float:
    assert found.status is Status.ESTIMATED, found.message
    assert found.value is not None
    return found.value


def quadratic() -> fg.Objective:
    """A linear model under the squared error: its loss is exactly quadratic."""
    random = torch.Generator().manual_seed(0)
    x = torch.randn(20, 4, generator=random, dtype=torch.float64)
    y = torch.randn(20, 3, generator=random, dtype=torch.float64)
    model = nn.Linear(4, 3, bias=False).double()
    model.weight.data = torch.randn(3, 4, generator=random, dtype=torch.float64)
    return fg.Objective(model, (x * torch.tensor([1, 2, 0.5, 1]), y), "mse")


def clusters() -> fg.Objective:
    """Three well separated clusters, and a network that separates them."""
    random = torch.Generator().manual_seed(0)
    y = torch.arange(30) % 3
    centres = 6 * torch.eye(3, dtype=torch.float64)
    x = centres[y] + torch.randn(30, 3, generator=random, dtype=torch.float64)
    model = mlp(3, 3, 3).double()
    for layer in (model[0], model[2]):
        layer.weight.data = torch.eye(3, dtype=torch.float64) + 0.1
        # Unequal, so that the scores differ also where all hidden units are off.
        layer.bias.data = torch.tensor([0.1, 0.2, 0.0], dtype=torch.float64)
    return fg.Objective(model, (x, y))


def allowed(first: Measurement, second: Measurement) -> float:
    return 4 * math.hypot(first.uncertainty or 0, second.uncertainty or 0)


OWN_LOSS = {"surrogate": "objective", "draws": 400}


@cache
def base() -> Measurement:
    return direct(known_network("A/ce"), **OWN_LOSS)


@pytest.mark.parametrize("lam", [0.5, pytest.param(50.0, marks=pytest.mark.slow)])
def test_on_a_quadratic_it_is_the_second_order_value(lam: float):
    found = direct(quadratic(), lam=lam, draws=1000)
    other = "normalized-sharpness"
    ns = fg.measure(quadratic(), other, options={other: {"lam": lam}})[other].value
    assert ns is not None
    assert found.details["second_order"] == pytest.approx(ns / math.sqrt(2))
    assert found.uncertainty is not None
    assert found.uncertainty < 0.02 * value(found)
    assert abs(value(found) - ns / math.sqrt(2)) < 4 * found.uncertainty
    # The value falls as λ^(-1/2), and half of it is the penalty.
    assert found.details["lambda_exponent"] == pytest.approx(-0.5, abs=0.05)


def test_details_state_the_parts_and_the_sensitivity_to_lambda():
    found = direct(known_network("B/ce"), surrogate="objective", draws=400)
    d = found.details
    assert value(found) == pytest.approx(d["loss_rise"] + d["penalty"])
    assert d["half_lambda"] == pytest.approx(d["loss_rise"] + 2 * d["penalty"])
    assert d["double_lambda"] == pytest.approx(d["loss_rise"] + d["penalty"] / 2)
    assert d["penalty"] == pytest.approx(sum(d["layers_penalty"].values()))
    assert set(d["layers_penalty"]) == {"0.weight", "2.weight", "4.weight"}
    assert d["left_out"] == ["0.bias", "2.bias", "4.bias"]
    assert d["imbalance"] < 0.5
    assert d["decrease_left"] >= 0


def test_it_is_no_worse_than_the_second_order_scales():
    """The descent must gain where the approximation is far off."""
    objective = CASES["mlp"].objective()
    options = {"surrogate": "objective", "draws": 100}
    first = direct(objective, steps=1, **options)
    found = direct(objective, **options)
    assert first.value is not None
    assert value(found) < first.value / 2


@pytest.mark.parametrize(
    "twin", [pytest.param("A_layer_4/ce", marks=pytest.mark.slow), "A_node/ce"]
)
def test_rescaling_moves_nothing(twin: str):
    before, after = base(), direct(known_network(twin), **OWN_LOSS)
    assert value(after) == pytest.approx(value(before), rel=1e-6)
    claims = find_measure(NAME).invariant_to(before.options)
    assert claims == {"layer-rescale", "node-rescale", "permutation", "sign-flip"}


@pytest.mark.slow
def test_permutation_moves_it_within_the_standard_error():
    objective = CASES["mlp"].objective()
    order = torch.tensor([3, 0, 5, 1, 2, 4])
    chain = Chain.of(objective.model())
    twin = objective.at(permute_units(objective.parameters, chain, 0, order))
    before, after = direct(objective, **OWN_LOSS), direct(twin, **OWN_LOSS)
    assert abs(value(before) - value(after)) < allowed(before, after)


@pytest.mark.slow
def test_seeds_agree_within_the_standard_error():
    before = base()
    after = direct(known_network("A/ce"), seed=1, **OWN_LOSS)
    assert value(before) != value(after)
    assert abs(value(before) - value(after)) < allowed(before, after)


def test_scaling_the_outputs_moves_nothing_under_the_normalized_loss():
    objective = clusters()
    layer = Chain.of(objective.model()).layers[-1]
    twin = objective.at(scale_output(objective.parameters, axes_of(layer), 3.0))
    before, after = direct(objective, lam=1000.0), direct(twin, lam=1000.0)
    claims = find_measure(NAME).invariant_to(before.options, before.loss)
    assert "output-scale" in claims
    assert value(after) == pytest.approx(value(before), rel=1e-6)


@pytest.mark.slow
def test_scaling_the_outputs_moves_it_under_cross_entropy():
    objective = known_network("A/ce")
    layer = Chain.of(objective.model()).layers[-1]
    twin = objective.at(scale_output(objective.parameters, axes_of(layer), 10.0))
    before, after = base(), direct(twin, **OWN_LOSS)
    assert "output-scale" not in find_measure(NAME).invariant_to(before.options)
    assert value(after) > 1.1 * value(before) + allowed(before, after)


def test_a_bounded_loss_has_no_minimum_for_small_lambda():
    found = direct(clusters(), lam=0.5)
    assert found.loss == "normalized-cross-entropy"
    assert found.status is Status.NOT_CONVERGED
    assert "raise lam" in found.message


def test_too_little_work_is_said_to_be_too_little():
    objective = known_network("A/ce")
    short = direct(objective, surrogate="objective", lam=50.0, steps=1)
    assert short.status is Status.NOT_CONVERGED
    assert "raise steps" in short.message
    few = direct(objective, surrogate="objective", draws=20)
    assert few.status is Status.NOT_CONVERGED
    assert "raise draws" in few.message
    options = {NAME: {"surrogate": "objective", "draws": 20}}
    with pytest.raises(NotConvergedError, match="raise draws"):
        fg.measure(objective, NAME, options=options, strict=True)


@pytest.mark.parametrize("case", ["lenet", "resnet-train", "tied-frozen", "gpt"])
def test_other_networks_give_numbers(case: str):
    objective = CASES[case].objective()
    found = direct(objective, surrogate="objective", steps=5, draws=4)
    assert found.value is not None
    assert math.isfinite(found.value)


def test_dead_units_and_zero_rows_give_numbers():
    objective = clusters()
    weight = objective.parameters["0.weight"].clone()
    weight[0] = 0
    weight[1] = -1
    bias = torch.tensor([0.0, -9.0, 0.1], dtype=torch.float64)
    dead = objective.at({**objective.parameters, "0.weight": weight, "0.bias": bias})
    for surrogate in ("auto", "objective"):
        found = direct(dead, surrogate=surrogate, steps=20, draws=20)
        assert found.value is not None
        assert math.isfinite(found.value)


class Gain(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, x):
        return x * self.gain


def test_where_it_does_not_apply_it_says_why():
    data = (torch.ones(3, 3, dtype=torch.float64), torch.arange(3))
    nothing = direct(fg.Objective(Gain(), data))
    assert nothing.status is Status.NOT_APPLICABLE
    assert "matrix" in nothing.message
    # Without biases, noise can switch off all hidden units: all scores are 0 then.
    dark = direct(known_network("A/ce"))
    assert dark.status is Status.NOT_APPLICABLE
    assert dark.value is None
    assert "not finite" in dark.message


@pytest.mark.parametrize("options", [{"lam": 0.0}, {"steps": 0}, {"draws": 2}])
def test_bad_options_are_refused(options: dict):
    with pytest.raises(OptionError, match=next(iter(options))):
        direct(quadratic(), **options)
