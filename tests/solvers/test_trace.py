from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from support.spectra import network_like, operator_with

from flatgauge.curvature import operator
from flatgauge.curvature.operator import DenseOperator
from flatgauge.errors import NonFiniteError, OptionError
from flatgauge.results import Status
from flatgauge.solvers import trace
from flatgauge.solvers.trace import Trace, estimate_trace
from flatgauge.solvers.xtrace import XTrace
from flatgauge.vectors import generator

POWER_LAW = 5.0 / np.arange(1, 301) * np.where(np.arange(300) % 5 == 3, -0.5, 1.0)
EXPONENTIAL = np.exp(-np.arange(200) / 10.0)
SPECTRA = {"network": network_like(), "power": POWER_LAW, "exponential": EXPONENTIAL}


def coverage(operator, seeds=200, **options):
    truth = torch.trace(operator.matrix.double()).item()
    runs = [estimate_trace(operator, seed=seed, **options) for seed in range(seeds)]
    assert all(run.status is not Status.EXACT for run in runs)
    inside = [low <= truth <= high for low, high in (run.interval() for run in runs)]
    return np.mean(inside), runs


@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize(
    ("method", "target"),
    [
        pytest.param("xtrace", 0.03, marks=pytest.mark.slow),
        ("hutchinson", 0.15),
    ],
)
def test_the_interval_covers_the_trace(name, method, target):
    operator = operator_with(SPECTRA[name])
    share, runs = coverage(operator, method=method, target=target, max_products=190)
    assert 0.90 <= share <= 0.995
    reached = [run for run in runs if run.status is Status.ESTIMATED]
    assert len(reached) >= 0.9 * len(runs)
    assert all(run.standard_error <= target * run.value for run in reached)


def hard(name, size=200):
    """The identity and one large pair beside its diagonal, or a multiple of ones."""
    matrix = torch.eye(size, dtype=torch.float64)
    if name == "ones":
        return DenseOperator(matrix + 1.0)
    matrix[0, 1] = matrix[1, 0] = 0.5 * size * float(name)
    return DenseOperator(matrix)


# Where runs end early by luck, those that do not are exact or out of products.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "name", "target", "most"),
    [
        ("hutchinson", "1.0", 0.1, 512),
        ("hutchinson", "3.0", 0.2, 512),
        ("hutchinson", "10", 0.1, 190),
        ("hutchinson", "ones", 0.05, 512),
        ("hutchinson", "ones", 0.2, 190),
        ("xtrace", "10", 0.05, 512),
        ("xtrace", "ones", 0.05, 512),
    ],
)
def test_a_search_that_ends_by_luck_is_not_believed(method, name, target, most):
    operator = hard(name)
    truth = torch.trace(operator.matrix).item()
    inside = []
    for seed in range(100):
        found = estimate_trace(operator, target, most, seed, method)
        if found.status is not Status.EXACT:
            low, high = found.interval()
            inside.append(low <= truth <= high)
    # 95 % but for three standard deviations of so few draws, and three runs.
    assert sum(inside) >= 0.90 * len(inside) - 3 * math.sqrt(0.05 * len(inside))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["xtrace", "hutchinson"])
def test_the_interval_covers_the_trace_when_the_products_run_out(method):
    operator = operator_with(POWER_LAW)
    share, runs = coverage(operator, method=method, target=1e-4, max_products=48)
    assert 0.90 <= share <= 0.995
    for run in runs:
        usable = run.standard_error <= 0.1 * run.value
        assert run.status is (Status.ESTIMATED if usable else Status.NOT_CONVERGED)
    assert all("max_products=48" in run.message for run in runs)
    assert all(run.products == 48 for run in runs)


@pytest.mark.parametrize("method", ["xtrace", "hutchinson"])
def test_the_estimate_is_not_biased(method):
    operator = operator_with(SPECTRA["network"])
    truth = torch.trace(operator.matrix).item()
    values = [
        estimate_trace(operator, 0.5, 40, seed, method).value for seed in range(300)
    ]
    error = np.std(values) / math.sqrt(len(values))
    assert abs(np.mean(values) - truth) < 4 * error


def test_the_leave_one_out_estimates_are_what_they_are_defined_to_be():
    operator = operator_with(SPECTRA["network"], seed=4)
    estimator = XTrace(operator, generator(0))
    estimator.grow(13)
    signs = torch.cat(estimator._signs).double().T
    matrix = operator.matrix
    expected = []
    for left_out in range(13):
        others = [column for column in range(13) if column != left_out]
        basis, _ = torch.linalg.qr(matrix @ signs[:, others])
        probe = signs[:, left_out] - basis @ (basis.T @ signs[:, left_out])
        inside = torch.trace(basis.T @ matrix @ basis)
        expected.append((inside + probe @ matrix @ probe).item())
    assert estimator.estimate()[0] == pytest.approx(np.mean(expected), rel=1e-10)


def test_xtrace_beats_hutchinson_on_the_spectrum_of_a_network():
    operator = operator_with(SPECTRA["network"])
    by_x = estimate_trace(operator, target=0.02, method="xtrace")
    by_h = estimate_trace(operator, target=0.1, method="hutchinson", max_products=199)
    assert by_x.products < by_h.products
    assert by_x.standard_error < by_h.standard_error


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_low_rank_is_found_exactly(dtype):
    operator = operator_with([5.0, 2.0, -1.0] + [0.0] * 97, dtype=dtype)
    found = estimate_trace(operator, target=1e-4, method="xtrace")
    truth = torch.trace(operator.matrix.double()).item()
    assert found.status is Status.ESTIMATED
    assert found.products == 16
    assert abs(found.value - truth) <= 1e3 * torch.finfo(dtype).eps


@pytest.mark.parametrize("method", ["auto", "xtrace", "hutchinson"])
def test_where_curvature_cancels_there_is_no_estimate(method):
    half = np.linspace(0.1, 3.0, 100)
    operator = operator_with([*half, *-half])
    found = estimate_trace(operator, method=method)
    assert found.status is Status.NOT_CONVERGED
    assert "may cancel: raise max_products=64" in found.message
    assert found.products == operator.products <= 64
    low, high = found.interval(0.999)
    assert low < 0 < high


def test_an_error_of_some_percent_is_an_estimate():
    operator = operator_with(np.concatenate([np.full(150, 3.0), np.full(50, -3.0)]))
    found = estimate_trace(operator, 1e-3, method="hutchinson")
    assert found.status is Status.ESTIMATED
    assert 1e-3 < found.standard_error / found.value <= 0.1
    assert "above the target" in found.message


@pytest.mark.parametrize("method", ["xtrace", "hutchinson"])
def test_the_zero_operator(method):
    found = estimate_trace(DenseOperator(torch.zeros(100, 100)), method=method)
    assert (found.value, found.standard_error) == (0.0, 0.0)
    assert found.status is Status.ESTIMATED


@pytest.mark.parametrize("size", [1, 2, 16])
def test_small_operators_are_exact(size):
    operator = operator_with(np.arange(1.0, size + 1))
    found = estimate_trace(operator)
    assert found.status is Status.EXACT
    assert found.value == pytest.approx(size * (size + 1) / 2, rel=1e-14)
    assert found.products == operator.products == size
    assert found.interval() == (found.value, found.value)


@pytest.mark.parametrize("method", ["auto", "xtrace", "hutchinson"])
def test_it_turns_exact_where_that_is_cheaper(method):
    operator = operator_with(np.linspace(-1.0, 2.0, 100))
    found = estimate_trace(operator, 1e-6, 512, method=method)
    assert found.status is Status.EXACT
    assert found.value == pytest.approx(50.0, rel=1e-13)
    assert found.products == operator.products < 250


def test_the_interval_is_student_s():
    found = Trace(1.0, 0.5, 7.0, Status.ESTIMATED, "", 16, 8, "xtrace")
    assert found.interval(0.95) == pytest.approx((1 - 1.182312, 1 + 1.182312), abs=1e-5)


def test_the_seed_decides_and_the_products_are_counted():
    operator = operator_with(SPECTRA["network"])
    first, again, other = (
        estimate_trace(operator, 0.2, seed=seed) for seed in (0, 0, 1)
    )
    assert first.value == again.value != other.value
    assert operator.products == first.products + again.products + other.products


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"method": "guess"}, "'guess'"),
        ({"target": 0.0}, "target=0"),
        ({"max_products": 3}, "raise it to 8"),
    ],
)
def test_bad_options_are_refused(options, said):
    with pytest.raises(OptionError, match=said):
        estimate_trace(operator_with(SPECTRA["network"]), **options)


@pytest.mark.parametrize("method", ["xtrace", "hutchinson"])
def test_non_finite_products_are_refused(method):
    matrix = torch.full((100, 100), float("nan"))
    with pytest.raises(NonFiniteError, match="is not finite"):
        estimate_trace(DenseOperator(matrix), method=method)


class TestAuto:
    """Plain probes where they do, XTrace where it says more."""

    def test_a_flat_spectrum(self):
        operator = operator_with(np.linspace(1.0, 2.0, 200))
        found = estimate_trace(operator)
        assert (found.method, found.products) == ("hutchinson", 8)

    def test_the_spectrum_of_a_network(self):
        operator = operator_with(SPECTRA["network"])
        found = estimate_trace(operator)
        alone = estimate_trace(operator, method="xtrace")
        assert (found.method, found.status) == ("xtrace", Status.ESTIMATED)
        assert found.products <= alone.products
        assert operator.products == found.products + alone.products

    def test_where_xtrace_says_no_more(self):
        half = np.linspace(0.9, 1.1, 2000)
        operator = operator_with([*half, *-half[:1500]])
        found = estimate_trace(operator)
        assert found.method == "hutchinson"
        assert (found.products, found.probes) == (64, 56)

    @pytest.mark.parametrize(
        "noise", [0.03, 0.1, pytest.param(0.15, marks=pytest.mark.slow)]
    )
    def test_as_many_as_the_variance_asks_for(self, noise):
        """With a stopping rule of 2 %, and coverage in spite of it."""
        # wᵀAw = n + Σ_{i≠j} a_ij w_i w_j, nearly normal.
        size = 400
        off = torch.randn(size, size, generator=generator(0), dtype=torch.float64)
        off = (off + off.T).fill_diagonal_(0.0)
        deviation = math.sqrt(2 * float(off.square().sum()))
        matrix = torch.eye(size, dtype=torch.float64) + noise * size / deviation * off
        operator = DenseOperator(matrix)
        share, runs = coverage(operator, 400)
        assert share >= 0.93
        perfect = max(8.0, (noise / 0.02) ** 2)
        assert np.mean([run.products for run in runs]) <= 1.2 * perfect
        assert min(run.probes for run in runs) >= 8

    @pytest.mark.slow
    @pytest.mark.parametrize("name", SPECTRA)
    def test_coverage(self, name):
        share, _ = coverage(operator_with(SPECTRA[name]), 400)
        assert share >= 0.93

    def test_little_memory(self, monkeypatch):
        monkeypatch.setattr(trace, "memory_budget", lambda *_: 0)
        monkeypatch.setattr(operator, "memory_budget", lambda *_: 0)
        network = operator_with(SPECTRA["network"])
        found = estimate_trace(network)
        assert found.method == "hutchinson"
        plain = estimate_trace(network, method="hutchinson")
        assert found.value == pytest.approx(plain.value, rel=1e-12)
