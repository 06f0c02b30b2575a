from __future__ import annotations

import pytest
import torch
from support.cases import CASES
from support.spectra import network_like, operator_with

import flatgauge as fg
from flatgauge.curvature.operator import DenseOperator
from flatgauge.solvers.density import spectral_density
from flatgauge.solvers.inner import combination, inner_products
from flatgauge.solvers.lanczos import eigenvalues, largest_eigenvalue
from flatgauge.solvers.power import power_method
from flatgauge.solvers.trace import estimate_trace

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]


@pytest.fixture
def pair():
    host = operator_with(network_like())
    return host, DenseOperator(host.matrix.cuda())


@pytest.mark.parametrize(
    "solver",
    [
        lambda operator: largest_eigenvalue(operator, tol=1e-6).value,
        lambda operator: eigenvalues(operator, k=3, which="both", tol=1e-6).values,
        lambda operator: power_method(operator, tol=1e-6).value,
        lambda operator: estimate_trace(operator).value,
        lambda operator: estimate_trace(operator, 0.2, method="hutchinson").value,
        lambda operator: estimate_trace(operator, 1e-9).value,
        lambda operator: spectral_density(operator, steps=20).moment(2)[0],
        lambda operator: spectral_density(operator, steps=200).moment(2)[0],
    ],
)
def test_the_device_changes_nothing_but_rounding(pair, solver):
    host, device = pair
    assert solver(device) == pytest.approx(solver(host), rel=1e-9)


def test_the_users_coarse_products_do_not_reach_the_basis():
    place = torch.backends.cuda.matmul
    before = place.fp32_precision
    place.fp32_precision = "tf32"
    try:
        rows = torch.randn(20, 100_000, device="cuda")
        exact = rows.double() @ rows.double().T
        weights = torch.randn(3, 20, device="cuda")
        sums = weights.double() @ rows.double()
        assert torch.allclose(inner_products(rows, rows), exact, rtol=1e-6, atol=0.05)
        assert torch.allclose(combination(weights, rows).double(), sums, atol=1e-4)
        assert place.fp32_precision == "tf32"
    finally:
        place.fp32_precision = before


def test_noise_on_a_gpu_is_that_on_the_host():
    host = CASES["mlp"].objective()
    device = CASES["mlp"].objective(device="cuda")
    request = "normalized-sharpness-direct[lam=1000.0,steps=20,draws=20]"
    one, other = (fg.measure(o, request)[request] for o in (host, device))
    assert other.value == pytest.approx(one.value, rel=1e-6)
    assert other.uncertainty == pytest.approx(one.uncertainty, rel=1e-6)
