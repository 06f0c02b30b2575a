from __future__ import annotations

import numpy as np
import pytest
import torch
from support.spectra import exact, network_like, operator_with, tridiagonalize

from flatgauge.curvature.operator import DenseOperator
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers.density import quadrature, spectral_density
from flatgauge.solvers.lanczos import largest_eigenvalue


def test_moments_lie_within_their_standard_errors():
    operator = operator_with(network_like())
    true = exact(operator)
    deviations = []
    for seed in range(30):
        density = spectral_density(operator, probes=20, steps=8, seed=seed)
        for power in (1, 2, 3):
            mean, error = density.moment(power)
            deviations.append((mean - np.mean(true**power)) / error)
    deviations = np.array(deviations)
    assert np.abs(deviations).max() < 5
    assert 0.5 < deviations.std() < 1.2


def test_two_standard_errors_of_a_moment_hold_in_95_percent():
    operator = operator_with(np.linspace(-1.0, 3.0, 60))
    true = exact(operator)
    inside = []
    for seed in range(60):
        density = spectral_density(operator, probes=10, steps=3, seed=seed)
        for power in (1, 2):
            mean, error = density.moment(power)
            inside.append(abs(mean - np.mean(true**power)) <= 1.96 * error)
    assert np.mean(inside) >= 0.92


def test_the_quadrature_reproduces_polynomials():
    operator = operator_with(network_like())
    run = tridiagonalize(operator, steps=4)
    nodes, weights = quadrature(run.alphas, run.betas)
    start = run.combine(np.eye(4))[:, 0]
    for power in range(8):
        image = torch.linalg.matrix_power(operator.matrix, power) @ start
        expected = torch.dot(start, image).item()
        assert (weights * nodes**power).sum() == pytest.approx(expected, rel=1e-11)


@pytest.mark.parametrize("size", [1, 7, 80])
def test_small_operators_are_exact(size):
    operator = operator_with(np.linspace(-1.0, 2.0, size))
    density = spectral_density(operator)
    true = exact(operator)
    assert density.status is Status.EXACT
    assert density.nodes[0].numpy() == pytest.approx(true, abs=1e-14)
    for power in range(4):
        mean, error = density.moment(power)
        assert mean == pytest.approx(np.mean(true**power), abs=1e-13)
        assert error == 0.0


def test_weights_sum_to_one_for_each_probe():
    density = spectral_density(operator_with(network_like()), probes=3, steps=20)
    assert density.weights.sum(dim=1).numpy() == pytest.approx(np.ones(3), abs=1e-14)
    assert density.weights.min() >= 0
    assert density.nodes.shape == density.weights.shape == (3, 20)
    assert density.products == 60


def test_few_distinct_eigenvalues_need_few_points():
    operator = operator_with([3.0] + [1.0] * 149)
    density = spectral_density(operator, probes=5, steps=50)
    assert density.products < 40
    assert density.weights.sum(dim=1).numpy() == pytest.approx(np.ones(5), abs=1e-14)
    assert density.moment(0)[0] == pytest.approx(1.0)
    grid = torch.tensor([0.9, 1.1, 3.1], dtype=torch.float64)
    below = density.cumulative(grid)
    assert below[0] == 0
    assert below[1].item() == pytest.approx(149 / 150, abs=0.02)
    assert below[2].item() == pytest.approx(1.0)


def test_the_smoothed_density_integrates_to_one():
    density = spectral_density(operator_with(network_like()), steps=30)
    grid = torch.linspace(-3, 12, 20_001, dtype=torch.float64)
    for width in (None, 0.05, 0.5):
        values = density.evaluate(grid, width)
        assert torch.trapezoid(values, grid).item() == pytest.approx(1.0, abs=1e-6)
        assert values.min() >= 0


def test_the_cumulative_distribution_is_near_the_true_one():
    operator = operator_with(network_like())
    true = exact(operator)
    grid = torch.tensor([-0.3, 0.3, 3.0, 8.0, 20.0], dtype=torch.float64)
    shares = (true[:, None] <= grid.numpy()).mean(axis=0)
    found = spectral_density(operator, probes=40, steps=50).cumulative(grid).numpy()
    assert np.abs(found - shares).max() < 0.01
    assert found[-1] == pytest.approx(1.0)


def test_a_density_comes_free_with_the_largest_eigenvalue():
    operator = operator_with(network_like())
    found = largest_eigenvalue(operator, tol=1e-8)
    nodes, weights = quadrature(found.alphas, found.betas)
    assert nodes[-1] == pytest.approx(found.value, rel=1e-14)
    assert nodes[0] == pytest.approx(found.smallest, rel=1e-14)
    assert weights.sum() == pytest.approx(1.0)


def test_the_zero_operator():
    density = spectral_density(DenseOperator(torch.zeros(100, 100)))
    assert density.moment(2) == (0.0, 0.0)
    assert torch.isfinite(density.evaluate(torch.zeros(1))).all()


def test_bad_options_are_refused():
    operator = operator_with(network_like())
    with pytest.raises(OptionError, match="probes=1"):
        spectral_density(operator, probes=1)
    with pytest.raises(OptionError, match="width=0"):
        spectral_density(operator, steps=5).evaluate(torch.zeros(1), width=0.0)
