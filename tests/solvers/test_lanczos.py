from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.spectra import exact, network_like, operator_with

from flatgauge.curvature.operator import DenseOperator
from flatgauge.errors import OptionError
from flatgauge.results import Status
from flatgauge.solvers import ritz
from flatgauge.solvers.lanczos import eigenvalues, largest_eigenvalue
from flatgauge.solvers.ritz import distance_beyond, extreme, run_lanczos
from flatgauge.vectors import generator, ravel

BULK = list(np.linspace(0.0, 1.0, 97))
SPECTRA = {
    "dominant negative": [-5.0, 3.0, 2.0, *BULK],
    "tie 1e-8": [2.0, 2.0 - 1e-8, 1.5, *BULK],
    "tie 1e-6": [2.0, 2.0 - 1e-6, 1.5, *BULK],
    "tie 1e-4": [2.0, 2.0 - 1e-4, 1.5, *BULK],
    "tie 1e-2": [2.0, 2.0 - 1e-2, 1.5, *BULK],
    "no gap": list(np.linspace(0.0, 2.0, 100)),
    "rank three": [4.0, 3.0, -1.0] + [0.0] * 97,
    "triple": [2.0, 2.0, 2.0, *BULK],
    "negative": list(-np.linspace(0.0, 3.0, 100)),
}


@pytest.mark.parametrize(
    "dtype", [pytest.param(torch.float64, marks=pytest.mark.slow), torch.float32]
)
@pytest.mark.parametrize("name", SPECTRA)
def test_the_error_never_exceeds_its_bound(name, dtype):
    operator = operator_with(SPECTRA[name], dtype=dtype)
    true = exact(operator)
    for tol in (1e-1, 1e-2, 1e-3, 1e-5):
        for seed in range(12):
            found = largest_eigenvalue(operator, tol=tol, seed=seed)
            assert abs(found.value - true[-1]) <= found.error_bound
            assert abs(found.smallest - true[0]) <= found.smallest_error_bound


def test_the_residual_alone_would_not_be_an_error_bound():
    operator = operator_with(SPECTRA["tie 1e-4"])
    runs = [largest_eigenvalue(operator, tol=1e-3, seed=seed) for seed in range(40)]
    assert any(2.0 - run.value > run.residual for run in runs)


@pytest.mark.parametrize("tol", [1e-3, 1e-5])
@pytest.mark.parametrize("signs", [(1,), (-1,), (1, -1)])
def test_a_few_more_steps_bring_the_bound_below_one_percent(tol, signs):
    operator = operator_with(network_like())
    for seed in range(10):
        short = run_lanczos(operator, signs, tol, 300, generator(seed))
        run = run_lanczos(operator, signs, tol, 300, generator(seed), bounded=signs)
        assert run.alphas[: short.steps] == short.alphas
        assert run.steps - short.steps <= max(4, math.ceil(0.25 * short.steps))
        for sign in signs:
            end = extreme(run, sign, tol)
            assert distance_beyond(run, end, sign) <= 0.01 * 10.0


def test_the_steps_for_the_bound_are_few():
    operator = operator_with(SPECTRA["no gap"])
    short = run_lanczos(operator, (1,), 1e-1, 300, generator(0))
    bounded = {"bounded": (1,), "delta": 1e-300}
    long = run_lanczos(operator, (1,), 1e-1, 300, generator(0), **bounded)
    assert long.steps == short.steps + max(4, math.ceil(short.steps / 4))
    limit = short.steps + 2
    least = run_lanczos(operator, (1,), 1e-1, limit, generator(0), **bounded)
    assert least.steps == limit


def test_what_leaves_its_value_again_is_followed(monkeypatch):
    def unsteady(run, sign, tol):
        settled = run.steps in (3, 4) or run.steps >= 10
        return SimpleNamespace(settled=settled, goal=0.0)

    monkeypatch.setattr(ritz, "extreme", unsteady)
    monkeypatch.setattr(ritz, "distance_beyond", lambda *_: 1.0)
    operator = operator_with(network_like())
    run = run_lanczos(operator, (1,), 1e-3, 300, generator(0), bounded=(1,))
    assert run.steps == 10 + 4
    short = run_lanczos(operator, (1,), 1e-3, 7, generator(0), bounded=(1,))
    assert short.steps == 7


def test_no_steps_are_spent_on_the_bound_of_a_zero():
    operator = operator_with(SPECTRA["negative"])
    plain = run_lanczos(operator, (1,), 1e-3, 300, generator(0))
    assert largest_eigenvalue(operator).products == plain.steps


@pytest.mark.parametrize("name", SPECTRA)
def test_the_bound_vanishes_with_tight_convergence(name):
    operator = operator_with(SPECTRA[name])
    found = largest_eigenvalue(operator, tol=1e-13)
    assert found.status is Status.CONVERGED
    assert found.error_bound <= 1e-9 * found.radius
    assert found.value == pytest.approx(exact(operator)[-1], abs=1e-13 * found.radius)


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize(
    "which",
    [
        "largest",
        pytest.param("smallest", marks=pytest.mark.slow),
        pytest.param("both", marks=pytest.mark.slow),
    ],
)
def test_several_eigenvalues_are_counted_with_multiplicity(name, which):
    operator = operator_with(SPECTRA[name])
    true = exact(operator)
    ends = {"largest": true[::-1][:3], "smallest": true[:3]}
    expected = ends.get(which, np.concatenate(list(ends.values())))
    for tol in (1e-2, 1e-4, 1e-12):
        for seed in range(3):
            found = eigenvalues(operator, k=3, which=which, tol=tol, seed=seed)
            errors = np.abs(found.values - expected)
            assert np.all(errors <= found.error_bounds), (tol, seed)
            assert found.status is Status.CONVERGED
    assert errors.max() <= 1e-12


def test_several_eigenvalues_in_float32():
    operator = operator_with(SPECTRA["triple"], dtype=torch.float32)
    true = exact(operator)[::-1][:3]
    for seed in range(5):
        found = eigenvalues(operator, k=3, tol=1e-4, seed=seed)
        assert np.all(np.abs(found.values - true) <= found.error_bounds)
        assert found.status is Status.CONVERGED


def test_vectors_residuals_and_products_are_what_they_say():
    operator = operator_with(network_like())
    found = eigenvalues(operator, k=4, which="both", tol=1e-3)
    assert found.products == operator.products == sum(found.steps)
    assert len(found.values) == len(found.vectors) == 8
    for value, vector, residual in zip(
        found.values, found.vectors, found.residuals, strict=True
    ):
        flat = ravel(vector)
        assert flat.norm().item() == pytest.approx(1.0, abs=1e-14)
        true = (operator.matrix @ flat - value * flat).norm().item()
        assert true == pytest.approx(residual, rel=1e-6, abs=1e-13)
    assert all(
        residual <= 1e-3 * value
        for value, residual in zip(found.values[:4], found.residuals[:4], strict=True)
    )


def test_one_run_gives_both_ends():
    operator = operator_with(SPECTRA["dominant negative"])
    alone = largest_eigenvalue(operator, tol=1e-6)
    both = eigenvalues(operator, which="both", tol=1e-6)
    assert len(both.steps) == 1
    assert both.values == pytest.approx([3.0, -5.0], abs=1e-10)
    assert alone.value == pytest.approx(3.0, abs=1e-10)
    assert alone.radius == pytest.approx(5.0, abs=1e-10)
    one = eigenvalues(operator, tol=1e-6)
    assert one.values == pytest.approx([alone.value], abs=1e-10)


def test_both_ends_are_settled_on_request():
    operator = operator_with([10.0, *np.linspace(-1.0, 1.0, 200)])
    found = largest_eigenvalue(operator, tol=1e-3, both=True)
    assert found.status is found.smallest_status is Status.CONVERGED
    assert found.smallest_residual <= 1e-3 * found.radius
    assert found.products == operator.products
    assert found.products == eigenvalues(operator, which="both").products
    short = largest_eigenvalue(operator, tol=1e-3)
    assert short.products < found.products
    assert short.smallest_status is Status.NOT_CONVERGED


def test_the_tolerance_judges_only_the_end_asked_for():
    operator = operator_with([10.0, *np.linspace(-1.0, 1.0, 200)])
    found = largest_eigenvalue(operator, tol=1e-3)
    assert found.status is Status.CONVERGED
    assert found.smallest_residual > 1e-3
    assert abs(found.smallest + 1.0) <= found.smallest_error_bound


def test_too_few_steps_are_reported():
    operator = operator_with(SPECTRA["no gap"])
    found = largest_eigenvalue(operator, tol=1e-6, max_steps=5)
    assert found.status is Status.NOT_CONVERGED
    assert "max_steps=5" in found.message
    assert found.products == 5
    assert 2.0 - found.value <= found.error_bound


def test_a_tolerance_below_rounding_is_reported():
    operator = operator_with(network_like(), dtype=torch.float32)
    found = largest_eigenvalue(operator, tol=1e-9)
    assert found.status is Status.NOT_CONVERGED
    assert "float64" in found.message
    assert found.products < 40


@pytest.mark.parametrize("k", [1, 3])
def test_the_zero_operator(k):
    operator = DenseOperator(torch.zeros(5, 5))
    found = eigenvalues(operator, k=k, which="both")
    assert found.values == [0.0] * 2 * k
    assert found.error_bounds == [0.0] * 2 * k
    assert found.status is Status.CONVERGED


def test_one_dimension():
    found = eigenvalues(DenseOperator(torch.tensor([[-2.0]])), which="both")
    assert found.values == [-2.0, -2.0]


def test_all_eigenvalues_of_a_small_matrix():
    operator = operator_with([3.0, 1.0, 1.0, 0.0, -2.0])
    found = eigenvalues(operator, k=5, tol=1e-12)
    assert found.values == pytest.approx([3.0, 1.0, 1.0, 0.0, -2.0], abs=1e-13)


def test_the_seed_decides():
    operator = operator_with(network_like())
    first, again, other = (
        largest_eigenvalue(operator, tol=1e-2, seed=seed) for seed in (0, 0, 1)
    )
    assert first.value == again.value != other.value


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"k": 0}, "k=0"),
        ({"k": 6}, "k=6"),
        ({"which": "top"}, "'top'"),
        ({"tol": 0.0}, "tol=0"),
        ({"max_steps": 0}, "max_steps=0"),
    ],
)
def test_bad_options_are_refused(options, said):
    with pytest.raises(OptionError, match=said):
        eigenvalues(operator_with(np.arange(5.0)), **options)
