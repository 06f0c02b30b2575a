from __future__ import annotations

import warnings

import pytest
import torch
from cases import CASES, assert_close, random_vector
from torch import nn

import flatgauge as fg
from flatgauge.curvature.routes import ROUTES, choose, resolve_route
from flatgauge.curvature.routes.double_backward import DoubleBackward
from flatgauge.curvature.routes.finite_difference import FiniteDifference
from flatgauge.errors import OptionError

SMOOTH = ["tanh", "gelu", "gpt", "attention", "lstm"]


@pytest.mark.parametrize("case", SMOOTH)
def test_finite_differences_are_close_on_smooth_networks(case):
    objective = CASES[case].objective()
    vector = random_vector(objective)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = fg.Hessian(objective, "finite-difference") @ vector
    assert_close(found, fg.Hessian(objective) @ vector, 1e-6)


@pytest.mark.parametrize("case", ["mlp", "lenet", "resnet"])
def test_finite_differences_warn_on_piecewise_linear_networks(case):
    with pytest.warns(UserWarning, match="piecewise-linear network.*route='auto'"):
        fg.Hessian(CASES[case].objective(), "finite-difference")


def test_the_step_follows_the_size_of_each_tensor():
    """A rescaled smooth network gets rescaled steps: the same error, entry by entry."""
    objective = CASES["tanh"].objective()
    vector = random_vector(objective)
    expected = fg.Hessian(objective) @ vector
    errors = []
    for step in (1e-2, 1e-3):
        found = fg.Hessian(objective, FiniteDifference(step)) @ vector
        errors.append(sum(float((found[n] - expected[n]).norm()) for n in expected))
    assert 50 < errors[0] / errors[1] < 200


def test_zero_and_empty_tensors_have_a_step():
    class Odd(nn.Linear):
        def __init__(self):
            super().__init__(4, 3)
            self.bias.data.zero_()
            self.nothing = nn.Parameter(torch.zeros(0))

        def forward(self, x):
            return super().forward(x).tanh() + self.nothing.sum()

    objective = fg.Objective(Odd().double(), CASES["mlp"].data())
    vector = random_vector(objective)
    found = fg.Hessian(objective, "finite-difference") @ vector
    assert_close(found, fg.Hessian(objective) @ vector, 1e-6)


EXACT = ["double-backward", "jvp-of-gradient", "together", "linearized"]


@pytest.mark.parametrize("case", ["mlp", "lenet", "resnet", "gpt"])
@pytest.mark.parametrize("route", EXACT)
def test_routes_agree_with_double_backward(route, case):
    objective = CASES[case].objective()
    vectors = [random_vector(objective, seed) for seed in range(2)]
    expected = fg.Hessian(objective, "double-backward") @ vectors
    for found, truth in zip(
        fg.Hessian(objective, route) @ vectors, expected, strict=True
    ):
        assert_close(found, truth, 1e-12)


@pytest.mark.parametrize("case", ["mlp", "lenet", "resnet"])
def test_reverse_over_forward_is_right_without_layer_norm(case):
    objective = CASES[case].objective()
    vector = random_vector(objective)
    found = fg.Hessian(objective, "reverse-over-forward") @ vector
    assert_close(found, fg.Hessian(objective, "double-backward") @ vector, 1e-12)


@pytest.mark.parametrize("case", ["mlp", "gpt", "resnet-train"])
def test_the_choice_is_right(case, monkeypatch):
    """Whatever is chosen agrees with double backward, also where a candidate is wrong."""
    monkeypatch.setattr(choose, "WORTH_TRYING", 1)
    objective = CASES[case].objective()
    vector = random_vector(objective)
    hessian = fg.Hessian(objective)
    assert_close(
        hessian @ vector, fg.Hessian(objective, "double-backward") @ vector, 1e-9
    )
    choice = hessian.choice
    assert choice.route.name in choice.seconds
    assert choice.disagreement[choice.route.name] <= 1e-10
    assert {"jvp-of-gradient", "reverse-over-forward"} <= set(choice.disagreement)


def test_reverse_over_forward_is_left_out_where_it_is_wrong(monkeypatch):
    """Through affine LayerNorm on this torch, or it has been mended."""
    monkeypatch.setattr(choose, "WORTH_TRYING", 1)
    hessian = fg.Hessian(CASES["gpt"].objective())
    _ = hessian @ random_vector(hessian.objective)
    wrong = hessian.choice.disagreement["reverse-over-forward"] > choose.AGREEMENT
    assert wrong == ("reverse-over-forward" not in hessian.choice.seconds)


def test_a_wrong_candidate_is_not_chosen(monkeypatch):
    class Wrong(DoubleBackward):
        name = "wrong"

        def prepare(self, objective, batch):
            return lambda vectors: vectors

    monkeypatch.setattr(choose, "WORTH_TRYING", 1)
    monkeypatch.setattr(choose, "JvpOfGradient", Wrong)
    hessian = fg.Hessian(CASES["mlp"].objective())
    _ = hessian @ random_vector(hessian.objective)
    assert hessian.choice.disagreement["wrong"] > 0.1
    assert "wrong" not in hessian.choice.seconds


def test_small_problems_are_not_tried():
    hessian = fg.Hessian(CASES["mlp"].objective())
    _ = hessian @ random_vector(hessian.objective)
    assert hessian.choice.seconds == {}


@pytest.mark.gpu
@pytest.mark.parametrize("case", ["mlp", "lenet", "resnet", "gpt"])
def test_every_candidate_on_the_gpu_is_right_or_left_out(case):
    objective = CASES[case].objective(device="cuda")
    hessian = fg.Hessian(objective)
    vector = random_vector(objective)
    truth = fg.Hessian(objective, "double-backward") @ vector
    assert_close(hessian @ vector, truth, 1e-9)
    assert any("CUDA graph" in name for name in hessian.choice.seconds)


def test_names():
    assert set(EXACT) | {"reverse-over-forward", "finite-difference"} == set(ROUTES)
    route = FiniteDifference(1e-3)
    assert resolve_route(route) is route
    with pytest.raises(OptionError, match="'fast' is not known: use 'auto'"):
        resolve_route("fast")
