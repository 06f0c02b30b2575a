from __future__ import annotations

import warnings

import pytest
import torch
from cases import CASES, assert_close, random_vector
from torch import nn

import flatgauge as fg
from flatgauge.curvature.routes import ROUTES, resolve_route
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


def test_names():
    assert list(ROUTES) == ["double-backward", "jvp-of-gradient", "finite-difference"]
    assert resolve_route("auto").name == "double-backward"
    route = FiniteDifference(1e-3)
    assert resolve_route(route) is route
    with pytest.raises(OptionError, match="'fast' is not known: use 'auto'"):
        resolve_route("fast")
