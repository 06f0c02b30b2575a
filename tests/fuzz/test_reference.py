"""The references: against numbers worked out by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from fuzz.balancing import balanced
from fuzz.draw import Draw
from fuzz.losses import Loss, class_targets, entropies, normalized_entropies, squares
from fuzz.networks import Generated, Network
from fuzz.parts import Use, chunks, pieces, stack, whole
from fuzz.problems import Problem
from fuzz.reference import Reference
from fuzz.stems import Vector
from fuzz.truth import Truth


def linear_problem(weight, inputs, targets, loss=squares, mean="mse"):
    """One linear layer without a bias."""
    head = nn.Linear(weight.shape[1], weight.shape[0], bias=False).double()
    head.weight.data = weight
    model = Network(Vector(Draw(0, 0)), [], head)
    use = Use("head.weight")
    network = Generated(model, {use.name: use}, 0, True, False, False, "linear")
    chosen = Loss(mean, mean, loss, class_targets)
    return Problem(
        network, [(inputs, targets)], chosen, "eval", torch.float64, False, "linear"
    )


W = torch.tensor([[1.0, 2.0]], dtype=torch.float64)
X = torch.tensor([[1.0, 0.0], [0.0, 2.0]], dtype=torch.float64)
Y = torch.tensor([[0.0], [1.0]], dtype=torch.float64)


def test_a_linear_regression_by_hand():
    # L = ½ ((w₁)² + (2 w₂ − 1)²): H = diag(1, 4), ∇ = (1, 6), L = 5.
    truth = Truth(Reference(linear_problem(W, X, Y)), 1e-13)
    assert truth.value == pytest.approx(5.0)
    assert truth.gradient.tolist() == pytest.approx([1.0, 6.0])
    assert torch.allclose(
        truth.hessian(), torch.diag(torch.tensor([1.0, 4.0])).double()
    )
    assert torch.allclose(truth.gauss_newton, truth.hessian())
    assert truth.trace().values == pytest.approx([5.0])
    assert truth.extremes("euclidean").values == pytest.approx([4.0])
    assert truth.extremes("euclidean").extra["smallest"] == pytest.approx(1.0)
    assert truth.extremes("node").values == pytest.approx([16.0])
    assert truth.extremes("layer").values == pytest.approx([20.0])
    assert truth.matrix_sharpness("own").values == pytest.approx([5.0])
    uses = truth.reference.problem.network.uses
    # One row: 2 Σ |w| √h.
    assert truth.sharpness("own", uses, uses).values == pytest.approx([10.0])
    # ∇ℓ₁ = (2, 0), ∇ℓ₂ = (0, 12): ⟨θ, ∇ℓ⟩ = 2 and 24.
    assert truth.fisher_rao(False).values[0] == pytest.approx((4 + 576) / 2)
    assert truth.fisher_rao(True).values[0] == pytest.approx((4 + 576) / 2)
    assert truth.norm_product(uses, uses).values[0] == pytest.approx(math.log(5) / 2)


def test_entropies_by_hand():
    f = torch.tensor([[0.0, math.log(3.0)], [0.0, 800.0]], dtype=torch.float64)
    found = entropies(f, torch.tensor([0, 1]))
    assert found.tolist() == pytest.approx([math.log(4.0), 0.0])
    g = torch.tensor([[1.0, 2.0, 3.0]], dtype=torch.float64)
    spread = math.sqrt(2 / 3)
    rest = math.exp(-1 / spread) + math.exp(-2 / spread)
    wanted = math.log(1 + rest)
    assert float(normalized_entropies(g, torch.tensor([2]))) == pytest.approx(wanted)
    assert float(normalized_entropies(5 * g, torch.tensor([2]))) == pytest.approx(
        wanted
    )


def test_weights_of_rows_count():
    f = torch.tensor([[0.0], [1.0]], dtype=torch.float64)
    one = linear_problem(torch.tensor([[1.0]]).double(), f, f + 1)
    one.loss.weights = lambda y: torch.tensor([3.0, 1.0], dtype=torch.float64)
    assert Reference(one).value().item() == pytest.approx(1.0)
    one.batches = [(f, torch.tensor([[0.0], [3.0]], dtype=torch.float64))]
    assert Reference(one).value().item() == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("alpha", "beta", "value"),
    [
        ([[4.0]], [[9.0]], 12.0),
        ([[1.0, 4.0]], [[9.0, 1.0]], 2 * (3 + 2)),
        # The infimum is not attained: the entry above the diagonal goes to 0.
        ([[1.0, 1.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]], 4.0),
        ([[0.0, 0.0]], [[1.0, 1.0]], 0.0),
    ],
)
def test_balancing_in_closed_form(alpha, beta, value):
    assert balanced(np.array(alpha), np.array(beta)) == pytest.approx(value, rel=1e-12)


def test_balancing_does_not_move_under_row_and_column_scales():
    random = np.random.default_rng(0)
    alpha, beta = random.exponential(size=(2, 4, 5)) ** 4
    scale = np.exp(2 * random.normal(size=(4, 1)) + 2 * random.normal(size=(1, 5)))
    before, after = balanced(alpha, beta), balanced(alpha * scale, beta / scale)
    assert after == pytest.approx(before, rel=1e-11)
    lower = 2 * np.sqrt(alpha * beta).sum()
    upper = 2 * math.sqrt(alpha.sum() * beta.sum())
    assert lower < before < upper


def test_views_cut_a_tensor_into_its_matrices():
    t = torch.arange(24.0).reshape(4, 2, 3)
    assert torch.equal(whole(t)[0], t.sum(2))
    assert [m.shape for m in chunks(2)(t)] == [(2, 2), (2, 2)]
    assert [m.shape for m in stack(t)] == [(2, 3)] * 4
    assert [m.shape for m in pieces(1, 3)(t[:, :, 0])] == [(1, 2), (3, 2)]
