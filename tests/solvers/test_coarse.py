"""Products that are coarser than their dtype, such as those of TF32, certify less."""

from __future__ import annotations

import pytest
import torch

from flatgauge.curvature.operator import DenseOperator
from flatgauge.results import Status
from flatgauge.solvers.lanczos import eigenvalues, largest_eigenvalue
from flatgauge.solvers.power import power_method
from flatgauge.solvers.spectrum import solve_spectrum
from flatgauge.solvers.trace import estimate_trace

COARSE = 2**-10
MATRIX = torch.diag(torch.linspace(1, 100, 40).double())


@pytest.fixture
def operator():
    return DenseOperator(MATRIX, COARSE)


@pytest.mark.parametrize("tol", [1e-2, 1e-5])
@pytest.mark.parametrize(
    "solve",
    [
        largest_eigenvalue,
        lambda operator, tol: eigenvalues(operator, 1, tol=tol),
        lambda operator, tol: power_method(operator, tol, 100_000),
        lambda operator, tol: solve_spectrum(operator, 1, 2, 50, tol, 300, 0).largest,
    ],
    ids=["largest", "chain", "power", "spectrum"],
)
def test_a_tolerance_below_their_rounding_is_not_met(operator, solve, tol):
    fine = solve(DenseOperator(MATRIX), tol)
    assert fine.status is Status.CONVERGED
    found = solve(operator, tol)
    assert (found.status is Status.CONVERGED) == (tol > COARSE)
    if tol < COARSE:
        assert "below the rounding error of the products" in found.message


def test_bounds_and_standard_errors_are_no_smaller(operator):
    assert largest_eigenvalue(operator).error_bound >= 100 * COARSE
    low = eigenvalues(operator, 1, "smallest")
    assert low.error_bounds[0] >= 100 * COARSE
    assert estimate_trace(operator, 0.1).standard_error >= COARSE * 100


def test_the_steps_are_those_of_fine_products(operator):
    assert largest_eigenvalue(operator, 1e-8).products == (
        largest_eigenvalue(DenseOperator(MATRIX), 1e-8).products
    )


def test_a_value_that_is_zero_up_to_rounding_counts_as_found():
    flat = DenseOperator(torch.diag(torch.tensor([-100.0, 0.05]).double()), COARSE)
    found = power_method(flat, tol=1e-3)
    assert found.status is Status.CONVERGED
    assert abs(found.value) <= 100 * COARSE
