from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.cases import CASES, NETWORK_CASES, assert_close, known, known_network
from support.dense import dense_diagonal, dense_fisher, dense_gauss_newton
from torch import nn

import flatgauge as fg
from flatgauge.curvature import dense
from flatgauge.errors import LossError, OptionError
from flatgauge.vectors import ravel


@pytest.mark.parametrize("name", NETWORK_CASES)
def test_known_answers(name):
    matrix = dense.dense_hessian(known_network(name))
    eigenvalues = dense.dense_eigenvalues(matrix)
    assert float(matrix.trace()) == pytest.approx(known(name, "trace"), rel=1e-10)
    assert float(eigenvalues[-1]) == pytest.approx(known(name, "lmax"), rel=1e-10)
    assert float(eigenvalues[0]) == pytest.approx(known(name, "lmin"), rel=1e-10)
    nuclear = float(eigenvalues.abs().sum())
    assert nuclear == pytest.approx(known(name, "nuclear"), rel=1e-10)


def softmax_regression():
    x, y = CASES["mlp"].data(5)
    model = nn.Linear(4, 3, bias=False).double()
    p = model(x).softmax(-1).detach()
    return x, y, p, fg.Objective(model, (x, y), batch_size=2)


def test_softmax_regression_has_a_closed_form():
    """∇²L = mean (diag p − ppᵀ) ⊗ xxᵀ, and the Fisher matrices likewise."""
    x, y, p, objective = softmax_regression()
    expected = torch.zeros(12, 12).double()
    empirical = torch.zeros(12, 12).double()
    for i in range(5):
        square = torch.outer(x[i], x[i])
        middle = torch.diag(p[i]) - torch.outer(p[i], p[i])
        expected += torch.kron(middle, square) / 5
        a = p[i] - F.one_hot(y[i], 3)
        empirical += torch.kron(torch.outer(a, a), square) / 5
    assert_close(dense.dense_hessian(objective), expected)
    assert_close(dense_gauss_newton(objective), expected)
    assert_close(dense_fisher(objective, "true"), expected)
    assert_close(dense_fisher(objective), empirical)
    assert_close(ravel(dense_diagonal(objective)), expected.diagonal())


def test_sizes_and_losses_that_are_refused():
    big = fg.Objective(nn.Linear(2000, 3), (torch.randn(2, 2000), torch.tensor([0, 1])))
    with pytest.raises(OptionError, match="6003 parameters was asked for, above 5000"):
        dense.dense_hessian(big)
    given = CASES["mlp"].objective(lambda f, y: f.square().mean())
    with pytest.raises(LossError, match="named loss"):
        dense_gauss_newton(given)
    with pytest.raises(OptionError, match="enumerates classes"):
        dense_fisher(CASES["mlp"].objective("mse"), "true")
