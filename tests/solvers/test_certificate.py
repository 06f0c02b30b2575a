from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import betainc
from support.spectra import exact, network_like, operator_with, tridiagonalize

from flatgauge.curvature.operator import DenseOperator
from flatgauge.solvers.basis import Room
from flatgauge.solvers.certificate import DELTA, distance_above
from flatgauge.solvers.krylov import Lanczos, random_start
from flatgauge.vectors import generator


def bound_of(run, dimension, floor, factor=1.0, delta=DELTA):
    """The largest Ritz value of a run, all scaled by a factor, and the bound above it."""
    values, vectors = run.ritz()
    distance = distance_above(
        factor * values,
        factor * run.betas[-1] * np.abs(vectors[-1]),
        [factor * beta for beta in run.divisors],
        dimension,
        floor,
        [factor * value for value in run.dropped],
        delta,
    )
    return factor * float(values[-1]), distance


SIZE = 200
EIGENVALUES = torch.linspace(0.0, 1.0, SIZE, dtype=torch.float64)


def bound_from(overlap, steps, rows=SIZE):
    """The bound after a run whose start holds `overlap` of the largest eigenvector."""
    operator = DenseOperator(torch.diag(torch.cat([EIGENVALUES, EIGENVALUES[-1:] + 1])))
    start = torch.ones(SIZE + 1, dtype=torch.float64) / math.sqrt(SIZE)
    start[-1] = overlap
    lanczos = Lanczos(operator, start, room=Room(rows * 8 * (SIZE + 1)))
    for _ in range(steps):
        lanczos.step()
    assert lanczos.restarted == (steps > rows)
    return bound_of(lanczos, SIZE + 1, 2 * lanczos.rounding)


@pytest.mark.parametrize("rows", [6, 9, 15, SIZE])
@pytest.mark.parametrize("steps", [1, 3, 5, 8, 12, 20, 40])
def test_the_bound_holds_for_the_worst_start_it_allows(steps, rows):
    worst = DELTA * math.sqrt(math.pi / (2 * (SIZE + 1)))
    ritz, bound = bound_from(1.001 * worst, steps, rows)
    assert 2.0 - ritz <= bound


def test_an_eigenvector_that_the_start_lacks_stays_unseen():
    ritz, bound = bound_from(0.0, 40)
    assert ritz + bound < 2.0


def test_the_bound_falls_step_by_step():
    operator = operator_with(network_like())
    bounds = []
    for steps in (2, 5, 10, 20, 30):
        run = tridiagonalize(operator, steps=steps)
        bounds.append(sum(bound_of(run, 200, 1e-14)))
    assert np.all(np.diff(bounds) < 1e-9)
    assert bounds[-1] == pytest.approx(exact(operator)[-1], abs=1e-10)


def test_the_bound_scales_with_the_operator():
    run = tridiagonalize(operator_with(network_like()), steps=9)
    _, one = bound_of(run, 200, 1e-14)
    _, tiny = bound_of(run, 200, 1e-14 * 2.0**-300, 2.0**-300)
    assert tiny == pytest.approx(one * 2.0**-300, rel=1e-9, abs=0)


def test_long_runs_do_not_overflow():
    run = tridiagonalize(operator_with(np.linspace(0, 1e100, 400)), steps=300)
    ritz, bound = bound_of(run, 400, 1e85)
    assert math.isfinite(bound)
    assert 1e100 - ritz <= bound


@pytest.mark.parametrize("rows", [6, 9, SIZE])
@pytest.mark.parametrize("steps", [2, 5, 7, 11, 16])
def test_the_bound_is_where_an_eigenvector_could_have_hidden(steps, rows):
    values = torch.from_numpy(network_like(SIZE))
    start = torch.randn(SIZE, generator=generator(0), dtype=torch.float64)
    room = Room(rows * 8 * (SIZE + 1))

    def run_with(point, share):
        diagonal = torch.cat([values, torch.tensor([point], dtype=torch.float64)])
        whole = torch.cat([start, torch.tensor([share], dtype=torch.float64)])
        lanczos = Lanczos(DenseOperator(torch.diag(diagonal)), whole, room=room)
        for _ in range(steps):
            lanczos.step()
        return lanczos

    lanczos = run_with(0.0, 0.0)
    floor = 10 * lanczos.rounding
    ritz, bound = bound_of(lanczos, SIZE, floor)
    # An eigenvector there, with so small a share of the start that nothing else changes:
    # its components along the basis are its polynomials.
    share = 1e-60
    other = run_with(ritz + bound, share * start.norm().item())
    assert other.restarted == (steps > rows)
    rows_there = other.combine(np.eye(len(other.basis)))[-1]
    seen = torch.cat([rows_there, other._next[-1:]]) / share
    threshold = 2 * SIZE / (math.pi * DELTA**2)
    reached = seen.square().sum().item() / threshold
    assert reached >= 0.95
    assert reached <= 1.05 or bound == floor


def test_a_smaller_probability_of_failure_asks_for_more():
    run = tridiagonalize(operator_with(network_like()), steps=7)
    bounds = [bound_of(run, 200, 1e-14, delta=delta)[1] for delta in (1e-2, 1e-3, 1e-6)]
    assert bounds == sorted(bounds)
    assert bounds[0] < bounds[-1]


@pytest.mark.parametrize("rows", [6, pytest.param(SIZE, marks=pytest.mark.slow)])
@pytest.mark.parametrize("delta", [0.1, 0.5])
def test_the_bound_fails_only_where_the_start_has_too_little_of_the_eigenvector(
    rows, delta
):
    values = torch.cat([EIGENVALUES, EIGENVALUES[-1:] + 0.2])
    operator = DenseOperator(torch.diag(values))
    least = delta * math.sqrt(math.pi / (2 * len(values)))
    draws, little, failed = 300, 0, 0
    for seed in range(draws):
        start = random_start(operator, generator(seed))
        run = Lanczos(operator, start, room=Room(rows * 8 * len(values)))
        for _ in range(8):
            run.step()
        ritz, bound = bound_of(run, len(values), 1e-14, delta=delta)
        lacking = abs(start[-1].item()) <= least * start.norm().item()
        assert lacking or ritz + bound >= 1.2
        little += lacking
        failed += ritz + bound < 1.2
    assert failed > 0
    deviation = math.sqrt(delta * (1 - delta) / draws)
    assert abs(little / draws - delta) <= 4 * deviation


@pytest.mark.parametrize("dimension", [2, 3, 10, 1000, 10**6, 10**9])
@pytest.mark.parametrize("delta", [1e-6, 1e-3, 0.1])
def test_the_probability_of_that_is_no_larger_than_stated(dimension, delta):
    square = delta**2 * math.pi / (2 * dimension)
    # The square of a coordinate of a uniform unit vector has a beta distribution.
    chance = betainc(0.5, (dimension - 1) / 2, square)
    assert 0.5 * delta <= chance <= delta
