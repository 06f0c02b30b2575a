from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.cases import CASES, assert_close, mlp, random_vector
from support.dense import dense_gauss_newton
from torch import nn

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.curvature.jacobian import jacobian_product
from flatgauge.errors import LossError
from flatgauge.vectors import add, ravel

LOSSES = ["cross-entropy", "mse", "normalized-cross-entropy"]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("loss", LOSSES)
def test_products_match_the_dense_matrix(case, loss):
    objective = CASES[case].objective(loss, count=4)
    vector = random_vector(objective)
    expected = dense_gauss_newton(objective) @ ravel(vector)
    for budget in (None, 0):
        operator = fg.GaussNewton(objective, memory_budget=budget)
        assert_close(ravel(operator @ vector), expected, 3e-12)


def test_is_the_hessian_of_a_linear_model():
    objective = fg.Objective(nn.Linear(4, 3).double(), CASES["mlp"].data())
    assert_close(fg.GaussNewton(objective).to_dense(), dense_hessian(objective))


def test_a_callable_loss_is_the_named_one():
    case = CASES["resnet"]
    named = case.objective("cross-entropy")
    vector = random_vector(named)
    given = fg.Objective(case.model(), case.data(), lambda f, y: F.cross_entropy(f, y))
    assert_close(fg.GaussNewton(given) @ vector, fg.GaussNewton(named) @ vector)


def test_a_loss_that_is_linear_in_the_outputs_has_none():
    objective = fg.Objective(
        mlp(4, 3).double(), CASES["mlp"].data(), lambda f, y: f.mean()
    )
    product = fg.GaussNewton(objective) @ random_vector(objective)
    assert float(ravel(product).norm()) == 0


def test_a_parameter_that_shifts_everything_by_a_constant():
    class Shifted(nn.Linear):
        def forward(self, x):
            return super().forward(x) * 0 + self.bias

    objective = fg.Objective(Shifted(4, 3).double(), CASES["mlp"].data())
    vector = random_vector(objective)
    found = fg.GaussNewton(objective) @ vector
    assert_close(ravel(found), dense_gauss_newton(objective) @ ravel(vector))


def test_the_product_with_the_jacobian_against_differences():
    objective = CASES["gpt"].objective()
    vector = random_vector(objective)
    with objective.isolated():
        batch = next(objective.batches())
        point = objective.leaves()
        found = jacobian_product(objective.evaluate(point, batch)[0], point, vector)
        sides = [
            objective.evaluate(add(objective.parameters, vector, step), batch)[0]
            for step in (1e-6, -1e-6)
        ]
    assert_close(found, (sides[0] - sides[1]) / 2e-6, 1e-8)


def test_outputs_must_be_one_tensor():
    class Pair(nn.Linear):
        def forward(self, x):
            scores = super().forward(x)
            return scores, scores

    objective = fg.Objective(
        Pair(4, 3), CASES["mlp"].data(), lambda f, y: F.cross_entropy(f[0], y)
    )
    with pytest.raises(LossError, match=r"one tensor, but the model returned tuple"):
        fg.GaussNewton(objective) @ random_vector(objective)


@pytest.mark.gpu
@pytest.mark.parametrize("case", ["resnet", "lstm", "gpt"])
def test_on_a_gpu(case):
    x, y = CASES[case].data(4)
    objective = fg.Objective(CASES[case].model(), (x, y), device="cuda")
    vector = random_vector(objective)
    expected = dense_gauss_newton(CASES[case].objective(count=4)) @ ravel(vector).cpu()
    assert_close(ravel(fg.GaussNewton(objective) @ vector).cpu(), expected, 1e-10)
    assert torch.cuda.is_available()
