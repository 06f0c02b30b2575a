from __future__ import annotations

import numpy as np
import pytest
import torch
from support.spectra import network_like, operator_with, tridiagonalize

from flatgauge.curvature.operator import DenseOperator, SymmetricOperator
from flatgauge.errors import NonFiniteError
from flatgauge.solvers.krylov import Lanczos, random_start
from flatgauge.vectors import generator


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_recurrence_holds_and_the_basis_is_orthonormal(dtype):
    operator = operator_with(network_like(), dtype=dtype)
    lanczos = tridiagonalize(operator, steps=60)
    basis = lanczos.combine(np.eye(60)).double()
    eps = torch.finfo(dtype).eps
    assert torch.allclose(basis.T @ basis, torch.eye(60).double(), atol=20 * eps)
    tridiagonal = basis.T @ operator.matrix.double() @ basis
    beside = np.diag(lanczos.betas[:-1], 1)
    expected = np.diag(lanczos.alphas) + beside + beside.T
    assert np.abs(tridiagonal.numpy() - expected).max() <= 200 * eps


def test_the_residual_is_the_true_one():
    operator = operator_with(network_like())
    lanczos = tridiagonalize(operator, steps=7)
    values, vectors = lanczos.ritz()
    vector = lanczos.combine(vectors[:, -1:])[:, 0]
    residual = operator.matrix @ vector - values[-1] * vector
    assert residual.norm() > 1e-4
    assert torch.allclose(lanczos.residual(vectors[:, -1]), residual, atol=1e-13)


def test_an_invariant_subspace_is_noticed():
    operator = operator_with([3.0, 2.0, 1.0] + [0.0] * 27)
    lanczos = tridiagonalize(operator, steps=30)
    assert lanczos.exhausted
    assert lanczos.steps <= 6


def test_the_whole_space_is_noticed():
    lanczos = tridiagonalize(operator_with(np.arange(5.0)), steps=30)
    assert lanczos.exhausted
    assert lanczos.steps == 5


def test_deflated_vectors_stay_out():
    operator = operator_with(network_like(50))
    values, vectors = torch.linalg.eigh(operator.matrix)
    deflated = vectors[:, -2:]
    start = random_start(operator, generator(0))
    lanczos = Lanczos(operator, start, deflated)
    for _ in range(30):
        lanczos.step()
    basis = lanczos.combine(np.eye(30))
    assert (deflated.T @ basis).abs().max() < 1e-13
    assert lanczos.ritz()[0][-1] == pytest.approx(values[-3].item(), rel=1e-12)
    assert lanczos.dimension == 48
    cosines = (deflated.T @ start / start.norm()).square().tolist()
    assert lanczos.deflated_shares == pytest.approx(cosines, rel=1e-12)


def test_memory_follows_the_steps_taken():
    operator = operator_with(network_like())
    lanczos = Lanczos(operator, random_start(operator, generator(0)))
    for _ in range(40):
        lanczos.step()
        assert lanczos.basis.allocated <= 1.5 * lanczos.steps + 8


def test_the_start_depends_on_seed_and_size_alone():
    small = operator_with(np.arange(6.0), dtype=torch.float32)
    large = operator_with(np.arange(6.0), seed=3)
    left, right = (random_start(op, generator(5)) for op in (small, large))
    assert torch.allclose(left, right.float(), rtol=1e-6)
    assert not torch.equal(right, random_start(large, generator(6)))


def test_a_factor_changes_nothing_else():
    matrix = operator_with(network_like()).matrix
    one = tridiagonalize(DenseOperator(matrix), steps=20)
    other = tridiagonalize(DenseOperator(matrix * 2.0**-20), steps=20)
    # To the last bit only where both sum in the same order, which nothing promises.
    for wanted, found in ((one.alphas, other.alphas), (one.betas, other.betas)):
        assert np.array(found) * 2.0**20 == pytest.approx(np.array(wanted), rel=1e-9)


class Diagonal(SymmetricOperator):
    def __init__(self, values):
        self.values = values
        self.space = {"x": torch.zeros_like(values)}

    def _apply(self, vectors):
        return [{"x": self.values * vector["x"]} for vector in vectors]


def test_long_float32_vectors_stay_orthonormal():
    values = 1e-3 * torch.randn(10**6, generator=generator(0))
    values[:6] = torch.tensor([20.0, 14.0, 8.0, 5.0, 1.0, -1.0])
    lanczos = tridiagonalize(Diagonal(values), steps=12, seed=1)
    basis = lanczos.combine(np.eye(12)).double()
    assert torch.allclose(basis.T @ basis, torch.eye(12).double(), atol=1e-6)
    assert lanczos.ritz()[0][-1] == pytest.approx(20.0, rel=1e-6)


def test_one_product_a_step():
    operator = operator_with(network_like())
    assert tridiagonalize(operator, steps=9).steps == operator.products == 9


def test_non_finite_products_are_refused():
    matrix = torch.eye(4)
    matrix[0, 0] = float("nan")
    with pytest.raises(NonFiniteError, match="is not finite"):
        tridiagonalize(DenseOperator(matrix))
