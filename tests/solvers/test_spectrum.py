from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from support.spectra import exact, network_like, operator_with

from flatgauge.curvature.operator import DenseOperator, SymmetricOperator
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers import ritz
from flatgauge.solvers.density import spectral_density
from flatgauge.solvers.krylov import Lanczos
from flatgauge.solvers.lanczos import eigenvalues
from flatgauge.solvers.spectrum import solve_spectrum
from flatgauge.vectors import ravel, unravel


def test_one_set_of_products_serves_all():
    operator = operator_with(network_like())
    found = solve_spectrum(operator, k=4, probes=6, steps=40)
    assert found.products == operator.products == 6 * 40
    assert found.density.products == 6 * 40
    assert found.largest.steps == [40] * 4
    assert found.smallest.steps == [40]
    true = exact(operator)
    for value, bound, expected in zip(
        found.largest.values, found.largest.error_bounds, true[::-1], strict=False
    ):
        assert abs(value - expected) <= bound <= 1e-12
    assert abs(found.smallest.values[0] - true[0]) <= found.smallest.error_bounds[0]
    assert found.largest.status is found.smallest.status is Status.CONVERGED


def test_the_density_is_that_of_the_same_probes_alone():
    operator = operator_with(network_like())
    joint = solve_spectrum(operator, k=4, probes=6, steps=40, seed=3).density
    alone = spectral_density(operator, probes=6, steps=40, seed=3)
    for power in range(6):
        assert joint.moment(power) == pytest.approx(alone.moment(power), rel=1e-11)
    assert joint.weights.sum(dim=1).numpy() == pytest.approx(np.ones(6), abs=1e-14)
    grid = torch.linspace(-1.0, 11.0, 50, dtype=torch.float64)
    near, same = (one.evaluate(grid, 0.3) for one in (joint, alone))
    assert torch.allclose(near, same, atol=1e-8)


@pytest.mark.parametrize("steps", [1, 3, 6])
def test_short_runs_go_on_for_the_eigenvalues_alone(steps):
    operator = operator_with(network_like())
    found = solve_spectrum(operator, k=2, probes=5, steps=steps, tol=1e-6)
    assert found.largest.status is found.smallest.status is Status.CONVERGED
    assert min(found.largest.steps) > steps
    assert found.products == sum(found.largest.steps) + 3 * steps == operator.products
    true = exact(operator)
    assert found.largest.values == pytest.approx(true[::-1][:2], rel=1e-10)
    # The deflated vectors have residuals up to the tolerance, which the moments show.
    mean, error = found.density.moment(1)
    assert abs(mean - true.mean()) <= 5 * error


def test_a_loose_tolerance_hardly_moves_the_density():
    operator = operator_with(network_like())
    joint = solve_spectrum(operator, k=5, probes=8, steps=4, tol=1e-2).density
    longer = spectral_density(operator, probes=8, steps=40)
    for power in (1, 2, 3):
        mean, error = longer.moment(power)
        assert abs(joint.moment(power)[0] - mean) <= 0.05 * error


def test_more_eigenvalues_than_probes_add_short_runs():
    operator = operator_with(network_like())
    found = solve_spectrum(operator, k=5, probes=2, steps=60)
    assert found.largest.steps[:2] == [60, 60]
    assert max(found.largest.steps[2:]) < 30
    assert found.density.nodes.shape[0] == 2
    assert found.density.products == 120
    assert found.products == sum(found.largest.steps) == operator.products


@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "values",
    [
        [2.0, 2.0, 2.0, *np.linspace(0.0, 1.0, 97)],
        list(np.linspace(-1.0, 2.0, 100)),
        [4.0, 3.0, -1.0] + [0.0] * 97,
        [-5.0, 3.0, 2.0, *np.linspace(0.0, 1.0, 97)],
    ],
)
def test_errors_stay_within_their_bounds(values, seed):
    operator = operator_with(values)
    true = exact(operator)
    found = solve_spectrum(operator, k=3, probes=3, steps=12, seed=seed)
    errors = np.abs(found.largest.values - true[::-1][:3])
    assert np.all(errors <= found.largest.error_bounds)
    assert abs(found.smallest.values[0] - true[0]) <= found.smallest.error_bounds[0]


def test_float32():
    operator = operator_with(network_like(), dtype=torch.float32)
    found = solve_spectrum(operator, k=4, probes=5, steps=40)
    alone = spectral_density(operator, probes=5, steps=40)
    assert found.largest.status is Status.CONVERGED
    assert found.density.moment(2) == pytest.approx(alone.moment(2), rel=1e-5)
    errors = np.abs(found.largest.values - exact(operator)[::-1][:4])
    assert np.all(errors <= found.largest.error_bounds)


class Named(SymmetricOperator):
    """A matrix of five rows as an operator on two tensors."""

    def __init__(self, matrix):
        self.matrix = matrix
        self.space = {"a": matrix.new_zeros(2), "b": matrix.new_zeros(3, 1)}

    def _apply(self, vectors):
        return [unravel(self.matrix @ ravel(one), self.space) for one in vectors]


def test_a_small_operator_is_computed_once():
    operator = Named(operator_with([3.0, 1.0, 1.0, 0.0, -2.0]).matrix)
    found = solve_spectrum(operator, k=3, tol=1e-12)
    assert found.products == operator.products == 5
    assert found.density.status is Status.EXACT
    assert found.largest.values == pytest.approx([3.0, 1.0, 1.0], abs=1e-13)
    assert found.smallest.values == pytest.approx([-2.0], abs=1e-13)
    alone = eigenvalues(operator, k=3, tol=1e-12)
    for one, other in zip(found.largest.vectors, alone.vectors, strict=True):
        assert one["b"].shape == (3, 1)
        assert torch.allclose(ravel(one), ravel(other), atol=1e-12)


def test_the_zero_operator():
    found = solve_spectrum(DenseOperator(torch.zeros(100, 100)), k=2)
    assert found.largest.values == [0.0, 0.0]
    assert found.smallest.values == [0.0]
    assert found.density.moment(2) == (0.0, 0.0)


def test_one_basis_is_held_at_a_time(monkeypatch):
    alive = weakref.WeakSet()
    most = 0

    class Counted(Lanczos):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            alive.add(self)

        def step(self):
            nonlocal most
            most = max(most, len(alive))
            super().step()

    monkeypatch.setattr(ritz, "Lanczos", Counted)
    solve_spectrum(operator_with(network_like()), k=4, probes=4, steps=20)
    assert most == 1


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 0}, "k=0"),
        ({"probes": 1}, "at least 2 probes"),
        ({"tol": 0.0}, "tol=0"),
    ],
)
def test_bad_options_are_refused(options, said):
    with pytest.raises(OptionError, match=said):
        solve_spectrum(operator_with(network_like()), **options)
