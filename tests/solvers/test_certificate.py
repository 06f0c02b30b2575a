from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from flatgauge.curvature.operator import DenseOperator
from flatgauge.solvers.certificate import DELTA, distance_above
from flatgauge.solvers.krylov import Lanczos, tridiagonalize
from solvers.spectra import exact, network_like, operator_with

SIZE = 200
EIGENVALUES = torch.linspace(0.0, 1.0, SIZE, dtype=torch.float64)


def bound_from(overlap, steps):
    """The bound after a run whose start holds `overlap` of the largest eigenvector."""
    operator = DenseOperator(torch.diag(torch.cat([EIGENVALUES, EIGENVALUES[-1:] + 1])))
    start = torch.ones(SIZE + 1, dtype=torch.float64) / math.sqrt(SIZE)
    start[-1] = overlap
    lanczos = Lanczos(operator, start)
    for _ in range(steps):
        lanczos.step()
    ritz = float(lanczos.ritz()[0][-1])
    bound = distance_above(lanczos.alphas, lanczos.betas, ritz, SIZE + 1, 1e-15)
    return ritz, bound


@pytest.mark.parametrize("steps", [1, 3, 5, 8, 12, 20, 40])
def test_the_bound_holds_for_the_worst_start_it_allows(steps):
    worst = DELTA * math.sqrt(math.pi / (2 * (SIZE + 1)))
    ritz, bound = bound_from(1.001 * worst, steps)
    assert 2.0 - ritz <= bound


def test_an_eigenvector_that_the_start_lacks_stays_unseen():
    ritz, bound = bound_from(0.0, 40)
    assert ritz + bound < 2.0


def test_the_bound_falls_step_by_step():
    operator = operator_with(network_like())
    bounds = []
    for steps in (2, 5, 10, 20, 30):
        run = tridiagonalize(operator, steps=steps)
        ritz = float(run.ritz()[0][-1])
        bounds.append(ritz + distance_above(run.alphas, run.betas, ritz, 200, 1e-14))
    assert np.all(np.diff(bounds) < 1e-9)
    assert bounds[-1] == pytest.approx(exact(operator)[-1], abs=1e-10)


def test_the_bound_scales_with_the_operator():
    run = tridiagonalize(operator_with(network_like()), steps=9)
    ritz = float(run.ritz()[0][-1])
    one = distance_above(run.alphas, run.betas, ritz, 200, 1e-14)
    tiny = distance_above(
        [alpha * 2.0**-300 for alpha in run.alphas],
        [beta * 2.0**-300 for beta in run.betas],
        ritz * 2.0**-300,
        200,
        1e-14 * 2.0**-300,
    )
    assert tiny == pytest.approx(one * 2.0**-300, rel=1e-9, abs=0)


def test_long_runs_do_not_overflow():
    run = tridiagonalize(operator_with(np.linspace(0, 1e100, 400)), steps=300)
    ritz = float(run.ritz()[0][-1])
    bound = distance_above(run.alphas, run.betas, ritz, 400, 1e85)
    assert math.isfinite(bound)
    assert 1e100 - ritz <= bound
