"""Products that a Lanczos run begins before it has read the last step's numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import CASES

from flatgauge.curvature.compose import Scaled
from flatgauge.curvature.hessian import Hessian
from flatgauge.curvature.operator import DenseOperator, rounding_of
from flatgauge.errors import NonFiniteError
from flatgauge.solvers.deflation import first_pairs
from flatgauge.solvers.density import SpectralDensity, spectral_density
from flatgauge.solvers.krylov import Lanczos, random_start, tridiagonalize
from flatgauge.solvers.lanczos import Extremes, eigenvalues, largest_eigenvalue
from flatgauge.solvers.ritz import End
from flatgauge.solvers.spectrum import Spectrum, solve_spectrum
from flatgauge.vectors import generator
from solvers.spectra import network_like, operator_with


class Hasty(DenseOperator):
    """An operator that Lanczos runs go ahead with."""

    begins_at_once = True


def hasty(eigenvalues, dtype=torch.float64, seed=0):
    return Hasty(operator_with(eigenvalues, dtype=dtype, seed=seed).matrix)


def patient(operator):
    return DenseOperator(operator.matrix)


SPECTRA = {
    "network": network_like(),
    "low rank": [3.0, 2.0, 1.0] + [0.0] * 27,
    "degenerate": [2.0, 2.0, 2.0, 1.0, -1.0] + [0.5] * 15,
    "not positive": [0.0] * 10 + [-1.0, -2.0] * 5,
    "zero": [0.0] * 6,
    "tiny": [2.0, 1.0],
}


# Here a dimension or a tolerance ends the run, and not what rounding left of a vector.
ENDS = {"network", "zero", "tiny"}


def summary(found):
    """Its numbers, and a bound of their errors."""
    if isinstance(found, SpectralDensity):
        return [found.moment(1)[0], found.moment(2)[0]], 0.0
    if isinstance(found, Extremes):
        bounds = found.error_bound + found.smallest_error_bound
        return [found.value, found.smallest], bounds
    if isinstance(found, Spectrum):
        parts = [found.largest, found.smallest, found.density]
        numbers, bounds = zip(*map(summary, parts), strict=True)
        return [one for part in numbers for one in part], sum(bounds)
    return found.values, max(found.error_bounds)


@pytest.mark.parametrize("spectrum", SPECTRA)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(
    "solve",
    [
        lambda operator: largest_eigenvalue(operator, both=True),
        lambda operator: eigenvalues(operator, k=2, which="both", tol=1e-9),
        lambda operator: eigenvalues(operator, max_steps=1),
        lambda operator: solve_spectrum(operator, k=2, probes=3, steps=4),
        lambda operator: spectral_density(operator, probes=3, steps=5),
    ],
    ids=["largest", "ends", "one step", "spectrum", "density"],
)
def test_nothing_else_changes(spectrum, dtype, solve):
    operator = hasty(SPECTRA[spectrum], dtype)
    found, expected = solve(operator), solve(patient(operator))
    (here, bound), (there, other) = summary(found), summary(expected)
    if spectrum in ENDS and dtype is torch.float64:
        assert found.products == expected.products
        assert here == pytest.approx(there, rel=0, abs=1e-9)
    # Moments go with the square of the radius.
    rounding = rounding_of(dtype) * (1 + max(map(abs, SPECTRA[spectrum]))) ** 2
    assert here == pytest.approx(there, rel=0, abs=bound + other + rounding)
    if not isinstance(found, Spectrum):
        assert found.status is expected.status


@pytest.mark.parametrize("make", [hasty, lambda values: patient(hasty(values))])
def test_a_vector_is_multiplied_from_where_it_was_made(make, monkeypatch):
    operator = make(network_like())
    offsets = []
    multiply = operator.multiply_flat

    def seen(vectors, check=True):
        offsets.append(vectors.storage_offset())
        return multiply(vectors, check=check)

    monkeypatch.setattr(operator, "multiply_flat", seen)
    tridiagonalize(operator, steps=12)
    assert offsets == [0] * 12


def test_it_does_run_ahead():
    operator = hasty(network_like())
    lanczos = Lanczos(operator, random_start(operator, generator(0)))
    lanczos.step(ahead=True)
    assert (lanczos.steps, operator.products) == (1, 2)
    lanczos.step()
    assert (lanczos.steps, operator.products) == (2, 2)
    plain = patient(operator)
    slow = Lanczos(plain, random_start(plain, generator(0)))
    slow.step(ahead=True)
    assert plain.products == 1


def counted(monkeypatch):
    """How many steps were taken with the next product begun, and how many without."""
    counts = {True: 0, False: 0}
    step = Lanczos.step

    def counting(self, ahead=False):
        counts[ahead] += 1
        step(self, ahead)

    monkeypatch.setattr(Lanczos, "step", counting)
    return counts


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("tol", [1e-2, 1e-3, 1e-5, 1e-9])
def test_few_products_are_begun_in_vain(monkeypatch, dtype, tol):
    counts = counted(monkeypatch)
    runs = range(12)
    operators = [hasty(network_like(), dtype, seed) for seed in runs]
    found = [largest_eigenvalue(one, tol=tol, seed=3) for one in operators]
    used = sum(one.products for one in found)
    assert sum(one.products for one in operators) - used <= 1
    assert counts[True] >= 0.5 * used


def test_a_value_of_zero_is_not_waited_for_in_vain():
    operator = hasty([0.0] * 50 + list(-np.linspace(0.1, 1.0, 50)))
    assert largest_eigenvalue(operator).products == operator.products


def test_the_most_steps_are_not_exceeded():
    operator = hasty(network_like())
    assert largest_eigenvalue(operator, tol=1e-9, max_steps=4).products == 4
    assert operator.products == 4
    first_pairs(operator, (1,), 1e-9, 3, generator(0), least_steps=9)
    assert operator.products == 7


@pytest.mark.parametrize("least", [5, 20])
def test_the_least_steps_are_all_run_ahead(monkeypatch, least):
    counts = counted(monkeypatch)
    operator = hasty(network_like())
    first_pairs(operator, (1,), 0.5, 300, generator(0), least_steps=least)
    assert operator.products == least
    assert counts == {True: least - 1, False: 1}


def test_the_last_dimension_is_not_multiplied_ahead():
    operator = hasty(np.arange(5.0))
    assert tridiagonalize(operator, steps=30).steps == operator.products == 5
    deflated = torch.linalg.eigh(operator.matrix)[1][:, -2:]
    lanczos = Lanczos(operator, random_start(operator, generator(0)), deflated)
    while not lanczos.exhausted:
        lanczos.step(ahead=True)
    assert lanczos.steps == operator.products - 5 == 3


def test_densities_end_with_their_last_step():
    operator = hasty(network_like())
    spectral_density(operator, probes=3, steps=7)
    assert operator.products == 21


def test_a_run_that_ends_by_itself_lets_go():
    operator = hasty([3.0, 2.0, 1.0] + [0.0] * 27)
    lanczos = tridiagonalize(operator, steps=30)
    assert lanczos.exhausted
    assert lanczos._ahead is None
    assert operator.products == lanczos.steps + 1


def test_what_is_not_finite_is_still_named():
    class Broken(Hasty):
        def _apply(self, vectors):
            images = super()._apply(vectors)
            return [{"x": image["x"] / (self.products < 3)} for image in images]

    with pytest.raises(NonFiniteError, match="'x'"):
        largest_eigenvalue(Broken(operator_with(network_like()).matrix))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [(0.0, 4.0, 4.0), (2.0, 4.0, 4.0), (8.0, 4.0, 2.0), (400.0, 4.0, 0.04)],
)
def test_residuals_are_expected_to_shrink_as_they_did(before, now, expected):
    end = End(1.0, np.ones(1), now, allowed=1e-3, floor=0.0, finest=0.0)
    assert end.expected_after(before) == pytest.approx(expected, rel=1e-12)


def test_only_recordings_begin_at_once():
    hessian = Hessian(CASES["mlp"].objective())
    scaled = Scaled(hessian, hessian.space)
    hessian @ hessian.space
    assert not hessian.begins_at_once
    assert not scaled.begins_at_once
    hessian.plan.route.replays = True
    assert hessian.begins_at_once
    assert scaled.begins_at_once
