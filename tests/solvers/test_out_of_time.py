"""Solvers that time ends: what they give is marked, and its error holds the truth."""

from __future__ import annotations

import pytest
import torch
from support.clocks import Clock, SlowOperator, spectrum

from flatgauge import deadline
from flatgauge.deadline import Deadline, OutOfTime
from flatgauge.results import Status
from flatgauge.solvers.ascent import maximize_on_ball
from flatgauge.solvers.lanczos import largest_eigenvalue
from flatgauge.solvers.power import power_method
from flatgauge.solvers.trace import estimate_trace
from flatgauge.solvers.volume import star_volume


@pytest.fixture
def clock(monkeypatch) -> Clock:
    found = Clock()
    monkeypatch.setattr(deadline, "clock", found)
    return found


@pytest.mark.parametrize("seconds", [1, 2, 3, 5, 8])
@pytest.mark.parametrize("seed", range(5))
def test_lanczos_bounds_the_eigenvalue_at_every_step(clock, seconds, seed):
    matrix = spectrum(60, seed)
    truth = torch.linalg.eigvalsh(matrix)
    with Deadline(float(seconds)).opened():
        found = largest_eigenvalue(SlowOperator(matrix, clock), tol=1e-9, seed=seed)
    assert found.status is Status.NOT_CONVERGED
    assert found.products == seconds
    done = "1 product" if seconds == 1 else f"{seconds} products"
    assert found.message == f"Stopped by the budget after {done}: raise budget=."
    assert found.value <= float(truth[-1]) + 1e-12
    assert float(truth[-1]) <= found.value + found.error_bound
    assert found.smallest - found.smallest_error_bound <= float(truth[0])
    image = matrix @ found.vector["x"] - found.value * found.vector["x"]
    assert float(image.norm()) == pytest.approx(found.residual, rel=1e-6)


def test_a_run_that_time_allows_is_what_it_was(clock):
    matrix = spectrum(60)
    plain = largest_eigenvalue(SlowOperator(matrix, clock))
    with Deadline(1000.0).opened():
        timed = largest_eigenvalue(SlowOperator(matrix, clock))
    assert (timed.alphas, timed.betas) == (plain.alphas, plain.betas)
    assert (timed.value, timed.status) == (plain.value, plain.status)


@pytest.mark.parametrize("method", ["auto", "hutchinson", "xtrace"])
@pytest.mark.parametrize("seconds", [2, 5, 9, 16, 30])
def test_the_trace_so_far_has_an_honest_interval(clock, method, seconds):
    matrix = spectrum(200)
    truth, held, given = float(matrix.diagonal().sum()), 0, 0
    for seed in range(40):
        operator = SlowOperator(matrix, clock)
        with Deadline(float(seconds)).opened():
            try:
                found = estimate_trace(operator, 1e-6, 64, seed, method)
            except OutOfTime:
                continue
        assert found.status is Status.NOT_CONVERGED
        assert "Stopped by the budget after" in found.message
        assert found.probes >= 2
        assert operator.products <= seconds
        low, high = found.interval()
        given, held = given + 1, held + (low <= truth <= high)
    if method != "xtrace":
        assert given == 40
    assert held >= 0.85 * given


def test_one_probe_has_no_error_and_is_no_estimate(clock):
    with Deadline(1.0).opened(), pytest.raises(OutOfTime):
        estimate_trace(SlowOperator(spectrum(200), clock), 1e-6, 64)


def test_the_power_method_gives_its_last_quotient(clock):
    matrix = spectrum(60)
    with Deadline(4.0).opened():
        found = power_method(SlowOperator(matrix, clock), tol=1e-9)
    assert (found.status, found.products) == (Status.NOT_CONVERGED, 4)
    assert "Stopped by the budget after 4 products" in found.message
    distance = (torch.linalg.eigvalsh(matrix) - found.value).abs().min()
    assert float(distance) <= found.residual


@pytest.mark.parametrize("seconds", [2, 4, 11])
def test_an_ascent_gives_the_highest_point_that_it_met(clock, seconds):
    weights = torch.linspace(1, 3, 20, dtype=torch.float64)

    def function(x):
        clock.now += 1
        return float((weights * x["x"] ** 2).sum()), {"x": 2 * weights * x["x"]}

    with Deadline(float(seconds)).opened():
        found = maximize_on_ball(function, {"x": torch.zeros(20).double()}, 1.0)
    assert found.status is Status.NOT_CONVERGED
    assert found.evaluations == seconds
    assert "at a lower bound of the maximum: raise budget=" in found.message
    assert found.center <= found.value <= 3.0
    assert function(found.point)[0] == pytest.approx(found.value)


def test_a_volume_has_the_error_of_its_directions(clock):
    def loss(d):
        clock.now += 1
        return float((d["x"] * torch.tensor([1.0, 2.0])).norm())

    space = {"x": torch.zeros(2, dtype=torch.float64)}
    with Deadline(300.0).opened():
        found = star_volume(loss, space, 0.5, radius=2.0)
    assert found.status is Status.NOT_CONVERGED
    assert 2 <= len(found.exits) < 100
    assert f"after {len(found.exits)} directions" in found.message
    truth = torch.tensor(torch.pi * 0.5 * 0.25).log()
    assert abs(found.log_volume - float(truth)) < 4 * found.standard_error
