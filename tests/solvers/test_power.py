from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.spectra import network_like, operator_with

from flatgauge.curvature.operator import DenseOperator
from flatgauge.errors import NonFiniteError, OptionError
from flatgauge.results import Status
from flatgauge.solvers.lanczos import largest_eigenvalue
from flatgauge.solvers.power import power_method
from flatgauge.vectors import ravel


def diagonal(*values):
    return DenseOperator(torch.diag(torch.tensor(values, dtype=torch.float64)))


def test_it_agrees_with_lanczos():
    operator = operator_with(network_like())
    power = power_method(operator, tol=1e-8)
    assert power.status is Status.CONVERGED
    assert power.value == pytest.approx(largest_eigenvalue(operator).value, rel=1e-6)
    assert power.value == pytest.approx(10.0, rel=1e-12)
    assert power.dominant == power.value
    assert power.shift == 0.0


def test_the_residual_and_the_histories_are_true():
    operator = operator_with(network_like())
    found = power_method(operator, tol=1e-4)
    flat = ravel(found.vector)
    residual = (operator.matrix @ flat - found.value * flat).norm().item()
    assert found.residual == pytest.approx(residual, rel=1e-9)
    assert found.residual <= 1e-4 * found.value
    assert len(found.quotients) == len(found.changes) == found.products
    assert found.products == operator.products
    assert found.changes[-1] <= 1e-4 < found.changes[-2]
    assert found.quotients[-1] == found.value


@pytest.mark.parametrize("seed", range(5))
def test_negative_dominant_curvature_is_shifted_away(seed):
    found = power_method(diagonal(-5, 3, 2, 1, 0), tol=1e-6, seed=seed)
    assert found.status is Status.CONVERGED
    assert found.value == pytest.approx(3.0, abs=1e-9)
    assert found.dominant == pytest.approx(-5.0, abs=1e-9)
    assert found.shift == pytest.approx(5.0, abs=1e-9)


@pytest.mark.parametrize("seed", range(5))
def test_without_the_shift_negative_dominant_curvature_is_named(seed):
    found = power_method(diagonal(-5, 3, 2, 1, 0), seed=seed, shift=False)
    assert found.status is Status.NOT_CONVERGED
    assert "negative" in found.message
    assert found.value == pytest.approx(-5.0, abs=1e-4)
    assert found.changes[-1] <= 1e-3


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("partner", [-3.0, -3.0 + 1e-9])
def test_opposite_ties_are_noticed(seed, partner):
    operator = diagonal(3, partner, 1, 0.5)
    mended = power_method(operator, tol=1e-6, seed=seed)
    assert mended.status is Status.CONVERGED
    assert mended.value == pytest.approx(3.0, abs=1e-9)
    assert math.isnan(mended.dominant)
    plain = power_method(operator, tol=1e-6, seed=seed, shift=False)
    assert plain.status is Status.NOT_CONVERGED
    assert "share the largest magnitude" in plain.message


def test_a_negative_operator_has_a_negative_largest_eigenvalue():
    found = power_method(diagonal(-5, -3, -2), tol=1e-6)
    assert found.status is Status.CONVERGED
    assert found.value == pytest.approx(-2.0, abs=1e-9)


def test_too_few_steps_are_reported():
    found = power_method(operator_with(np.linspace(0, 1, 50)), max_steps=7)
    assert found.status is Status.NOT_CONVERGED
    assert "max_steps=7" in found.message
    assert found.products == 7


def test_too_few_steps_for_the_shift_are_reported():
    found = power_method(diagonal(-5, 3, 2, 1, 0), tol=1e-6, max_steps=32)
    assert found.status is Status.NOT_CONVERGED
    assert found.products == 32


def test_the_zero_operator():
    found = power_method(DenseOperator(torch.zeros(4, 4)))
    assert (found.value, found.status) == (0.0, Status.CONVERGED)


def test_float32():
    operator = operator_with([-4.0, *network_like()], dtype=torch.float32)
    found = power_method(operator, tol=1e-4)
    assert found.status is Status.CONVERGED
    assert found.value == pytest.approx(10.0, rel=1e-5)


def test_bad_input_is_refused():
    with pytest.raises(OptionError, match="tol=0"):
        power_method(diagonal(1, 2), tol=0.0)
    with pytest.raises(NonFiniteError, match="is not finite"):
        power_method(DenseOperator(torch.full((2, 2), float("inf"))))
