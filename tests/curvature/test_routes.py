from __future__ import annotations

import inspect
import warnings
import weakref
from pathlib import Path

import pytest
import torch
from support.cases import CASES, assert_close, random_vector
from torch import nn

import flatgauge as fg
from flatgauge.curvature import routes
from flatgauge.curvature.routes import (
    RIVALS,
    ROUTES,
    double_backward,
    names_for,
    resolve_route,
)
from flatgauge.curvature.routes.channels_last import ChannelsLast
from flatgauge.curvature.routes.double_backward import DoubleBackward
from flatgauge.curvature.routes.finite_difference import FiniteDifference
from flatgauge.curvature.routes.kept_cuda_graph import KeptCudaGraph
from flatgauge.curvature.routes.reverse_twice import ReverseTwice
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


@pytest.mark.parametrize("case", ["mlp", "lenet", "resnet"])
def test_reverse_over_forward_is_right_without_layer_norm(case):
    objective = CASES[case].objective()
    vector = random_vector(objective)
    found = fg.Hessian(objective, "reverse-over-forward") @ vector
    assert_close(found, fg.Hessian(objective, "double-backward") @ vector, 1e-12)


@pytest.mark.gpu
@pytest.mark.parametrize("matrix", [fg.Hessian, fg.GaussNewton])
@pytest.mark.parametrize("case", ["mlp", "lenet", "resnet", "gpt"])
def test_every_candidate_on_the_gpu_is_right(case, matrix):
    objective = CASES[case].objective(device="cuda")
    vectors = [random_vector(objective, seed) for seed in range(2)]
    truth = matrix(objective, matrix.truth) @ vectors
    chosen = matrix(objective)
    candidates = [chosen, matrix(objective, KeptCudaGraph(ROUTES[matrix.truth]()))]
    for rival in RIVALS[matrix.truth]:
        # Wrong through layer normalization, so that it is not taken there.
        if (case, rival) != ("gpt", "reverse-over-forward"):
            plain = ROUTES[rival]()
            candidates += [matrix(objective, r) for r in (plain, ChannelsLast(plain))]
    for one in candidates:
        for found, right in zip(one @ vectors, truth, strict=True):
            assert_close(found, right, 1e-9)


def test_the_graph_of_a_gradient_does_not_hold_the_gradient(monkeypatch):
    """It has the size of the parameters, once for each batch."""
    slopes: list[weakref.ref] = []
    differentiate = double_backward.gradient_of

    def noted(*args, **options):
        found = differentiate(*args, **options)
        slopes.extend(map(weakref.ref, found.values()))
        return found

    monkeypatch.setattr(double_backward, "gradient_of", noted)
    objective = CASES["tanh"].objective()
    batch = next(objective.batches())
    product = DoubleBackward().prepare(objective, batch)
    assert len(slopes) == len(objective.parameters)
    assert all(slope() is None for slope in slopes)
    vector = random_vector(objective)
    assert all(image.abs().max() > 0 for image in product(vector).values())


@pytest.mark.parametrize("case", ["mlp", "lenet", "gpt"])
def test_routes_to_the_gauss_newton_matrix_agree(case):
    objective = CASES[case].objective()
    vectors = [random_vector(objective, seed) for seed in range(2)]
    expected = fg.GaussNewton(objective, "reverse-twice") @ vectors
    other = fg.GaussNewton(objective, "forward-and-reverse") @ vectors
    for found, truth in zip(other, expected, strict=True):
        assert_close(found, truth, 1e-12)


def test_a_route_to_another_matrix_is_refused():
    objective = CASES["mlp"].objective()
    route = ReverseTwice()
    with pytest.raises(OptionError, match="multiplies by the Gauss-Newton matrix"):
        fg.Hessian(objective, route)
    assert fg.GaussNewton(objective, route).plan.route is route


FOLDER = Path(routes.__file__).parent
ROUTE_FILES = sorted({Path(inspect.getfile(one)) for one in ROUTES.values()})


@pytest.mark.parametrize("file", ROUTE_FILES, ids=lambda file: file.stem)
def test_a_route_is_one_small_file(file):
    """Removing the file removes the route, and nothing else refers to it."""
    lines = [line for line in file.read_text().splitlines() if line.strip()]
    assert len(lines) < 60
    if file.stem in ("double_backward", "reverse_twice"):
        return  # the truths
    package = FOLDER.parents[1]
    mentions = [
        other.name
        for other in package.rglob("*.py")
        if f"routes.{file.stem} " in other.read_text()
    ]
    assert mentions == []


def test_names():
    assert set(names_for("Hessian")) == {
        "double-backward",
        "reverse-over-forward",
        "finite-difference",
    }
    assert set(names_for("Gauss-Newton")) == {"reverse-twice", "forward-and-reverse"}
    route = FiniteDifference(1e-3)
    assert resolve_route(route) is route
    # torch.func.linearize is wrong from its second call on.
    for unknown in ("fast", "linearized"):
        with pytest.raises(OptionError, match=f"'{unknown}' is not known: use 'auto'"):
            resolve_route(unknown)
