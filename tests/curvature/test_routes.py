from __future__ import annotations

import inspect
import warnings
from pathlib import Path

import pytest
import torch
from cases import CASES, assert_close, at_once, random_vector
from torch import nn

import flatgauge as fg
from flatgauge.curvature import choose, routes, tryout
from flatgauge.curvature.choose import TRIALS
from flatgauge.curvature.routes import ROUTES, VARIANTS, names_for, resolve_route
from flatgauge.curvature.routes.double_backward import DoubleBackward
from flatgauge.curvature.routes.finite_difference import FiniteDifference
from flatgauge.errors import OptionError

MANY = 10**9


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


EXACT = ["double-backward", "jvp-of-gradient", "together"]


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
def test_the_choice_is_right(case):
    """Whatever is chosen agrees with double backward, also where a candidate is wrong."""
    objective = CASES[case].objective()
    vector = random_vector(objective)
    hessian = at_once(fg.Hessian(objective))
    assert_close(
        hessian @ vector, fg.Hessian(objective, "double-backward") @ vector, 1e-9
    )
    choice = hessian.choice
    assert choice.route.name in choice.seconds
    assert choice.disagreement[choice.route.name] <= 1e-10
    assert {"jvp-of-gradient", "reverse-over-forward"} <= set(choice.disagreement)


def test_reverse_over_forward_is_left_out_where_it_is_wrong():
    """Through affine LayerNorm on this torch, or it has been mended."""
    hessian = at_once(fg.Hessian(CASES["gpt"].objective()))
    _ = hessian @ random_vector(hessian.objective)
    wrong = hessian.choice.disagreement["reverse-over-forward"] > tryout.AGREEMENT
    assert wrong == ("reverse-over-forward" not in hessian.choice.seconds)


def test_a_wrong_candidate_is_not_chosen(monkeypatch):
    class Wrong(DoubleBackward):
        name = "wrong"

        def prepare(self, objective, batch):
            return lambda vectors: vectors

    monkeypatch.setitem(ROUTES, "wrong", Wrong)
    hessian = at_once(fg.Hessian(CASES["mlp"].objective()))
    _ = hessian @ random_vector(hessian.objective)
    assert hessian.choice.disagreement["wrong"] > 0.1
    assert "wrong" not in hessian.choice.seconds


def test_a_trial_must_earn_its_cost_back():
    """On a CPU only where graphs do not fit, and only for many products."""
    objective = CASES["mlp"].objective()
    for budget, expect, tried in ((2**30, MANY, 0), (0, 20, 0), (0, MANY, 1)):
        hessian = fg.Hessian(objective, expect=expect, memory_budget=budget)
        _ = hessian @ random_vector(objective)
        assert hessian.choice.seconds == {}
        _ = hessian @ random_vector(objective)
        assert bool(hessian.choice.seconds) == tried


def test_there_is_no_trial_where_results_must_be_reproducible():
    objective = CASES["mlp"].objective()
    torch.use_deterministic_algorithms(True)
    try:
        hessian = fg.Hessian(objective, expect=MANY, memory_budget=0)
    finally:
        torch.use_deterministic_algorithms(False)
    for seed in range(3):
        _ = hessian @ random_vector(objective, seed)
    assert hessian.choice.seconds == {}


@pytest.mark.parametrize("device", TRIALS)
def test_trials_pay_for_large_problems(device):
    trial = TRIALS[device]
    assert not trial.pays(remaining=20, seconds=0.003, batches=1)
    assert trial.pays(remaining=20, seconds=2.5, batches=8)
    assert trial.pays(remaining=100_000, seconds=0.003, batches=1)


@pytest.mark.gpu
@pytest.mark.parametrize("matrix", [fg.Hessian, fg.GaussNewton])
@pytest.mark.parametrize("case", ["mlp", "lenet", "resnet", "gpt"])
def test_every_candidate_on_the_gpu_is_right(case, matrix):
    objective = CASES[case].objective(device="cuda")
    vectors = [random_vector(objective, seed) for seed in range(2)]
    chosen = at_once(matrix(objective))
    truth = matrix(objective, chosen.truth) @ vectors
    for found, right in zip(chosen @ vectors, truth, strict=True):
        assert_close(found, right, 1e-9)
    assert any("kept CUDA graph" in name for name in chosen.choice.seconds)
    batch = next(objective.batches())
    for route in choose._candidates(chosen.truth, 8):
        if chosen.choice.disagreement.get(route.name, 1.0) > tryout.AGREEMENT:
            continue
        for build in choose._variants(route, objective, batch):
            again = matrix(objective, build()) @ vectors
            for found, right in zip(again, truth, strict=True):
                assert_close(found, right, 1e-9)


@pytest.mark.parametrize("case", ["mlp", "lenet", "gpt"])
def test_routes_to_the_gauss_newton_matrix_agree(case):
    objective = CASES[case].objective()
    vectors = [random_vector(objective, seed) for seed in range(2)]
    chosen = at_once(fg.GaussNewton(objective))
    expected = fg.GaussNewton(objective, "reverse-twice") @ vectors
    for one in (chosen, fg.GaussNewton(objective, "forward-and-reverse")):
        for found, truth in zip(one @ vectors, expected, strict=True):
            assert_close(found, truth, 1e-12)
    assert set(chosen.choice.disagreement) == {"reverse-twice", "forward-and-reverse"}


def test_several_vectors_at_a_time_are_tried_together():
    objective = CASES["mlp"].objective()
    vectors = [random_vector(objective, seed) for seed in range(4)]
    one, four = (at_once(fg.Hessian(objective)) for _ in range(2))
    _ = one @ vectors[0], four @ vectors
    assert "together" not in one.choice.seconds
    assert "together" in four.choice.seconds


def test_what_must_be_kept_is_not_chosen_beyond_the_budget(monkeypatch):
    class Kept(DoubleBackward):
        name = "kept"
        replays = True

    monkeypatch.setitem(ROUTES, "kept", Kept)
    objective = CASES["mlp"].objective()
    for budget, tried in ((0, False), (2**30, True)):
        hessian = at_once(fg.Hessian(objective, memory_budget=budget))
        _ = hessian @ random_vector(objective)
        assert ("kept" in hessian.choice.seconds) == tried


FOLDER = Path(routes.__file__).parent
ROUTE_FILES = sorted(
    {Path(inspect.getfile(one)) for one in (*ROUTES.values(), *VARIANTS)}
)


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
    assert set(EXACT) | {"reverse-over-forward", "finite-difference"} == set(
        names_for("Hessian")
    )
    assert set(names_for("Gauss-Newton")) == {"reverse-twice", "forward-and-reverse"}
    route = FiniteDifference(1e-3)
    assert resolve_route(route) is route
    # torch.func.linearize is wrong from its second call on.
    for unknown in ("fast", "linearized"):
        with pytest.raises(OptionError, match=f"'{unknown}' is not known: use 'auto'"):
            resolve_route(unknown)
