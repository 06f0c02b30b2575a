from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.results import Status
from flatgauge.solvers.strata import couplings, grouped, sum_of_means
from flatgauge.solvers.student import skewness
from flatgauge.solvers.trace import estimate_trace
from flatgauge.vectors import generator, ravel, unravel

TENSORS, SIZE = 7, 60
# The output layer with all others, and pairs that follow each other.
COUPLED = [(0, other) for other in range(1, TENSORS)] + [(1, 2), (3, 4), (5, 6)]


class InTensors(SymmetricOperator):
    """A given matrix on vectors of several tensors."""

    def __init__(self, matrix):
        self.matrix = matrix
        self.space = {f"w{i}": matrix.new_zeros(SIZE) for i in range(TENSORS)}

    def _apply(self, vectors):
        return [unravel(self.matrix @ ravel(v), self.space) for v in vectors]


def place(i):
    return slice(i * SIZE, (i + 1) * SIZE)


def coupled(noise, inside=0.05, seed=0):
    """1 and noise: that share of the trace is the standard deviation of a probe."""
    count = TENSORS * SIZE
    shares = np.full((TENSORS, TENSORS), inside / TENSORS**2)
    for i, j in COUPLED:
        shares[i, j] = shares[j, i] = (1 - inside) / (2 * len(COUPLED))
    draw = torch.randn(count, count, generator=generator(seed), dtype=torch.float64)
    draw = torch.triu(draw, 1)
    draw = draw + draw.T
    for i in range(TENSORS):
        for j in range(TENSORS):
            block = draw[place(i), place(j)]
            block *= math.sqrt(shares[i, j]) / block.norm()
    return InTensors(torch.eye(count).double() + noise * count / math.sqrt(2) * draw)


def test_couplings_are_found():
    operator = coupled(0.3)
    matrix = operator.matrix
    truth = np.array(
        [
            [float(matrix[place(i), place(j)].square().sum()) for j in range(TENSORS)]
            for i in range(TENSORS)
        ]
    )
    found = couplings(operator, truth.sum(axis=1), generator(1))
    assert found == pytest.approx(found.T)
    assert found.sum() == pytest.approx(truth.sum(), rel=0.1)
    strong = truth > 0.02 * truth.sum()
    assert found[strong].sum() > 0.8 * found.sum()
    assert operator.products == 6


def test_what_is_coupled_is_apart():
    strengths = np.eye(TENSORS) * 0.1
    for i, j in COUPLED:
        strengths[i, j] = strengths[j, i] = 1.0
    found = grouped(strengths, allowed=0.1)
    together = [set(group) for group in found.groups]
    assert not any({i, j} <= group for i, j in COUPLED for group in together)
    assert found.variances.sum() == pytest.approx(2 * np.trace(strengths))


def test_without_couplings_there_is_one_group():
    assert len(grouped(np.eye(5), allowed=0.1).groups) == 1
    ones = np.ones((5, 5))
    assert len(grouped(ones, allowed=0.1).groups) == 1


def test_the_trace_takes_fewer_products():
    operator = coupled(0.2)
    found = estimate_trace(operator)
    assert (found.method, found.status) == ("strata", Status.ESTIMATED)
    assert found.products == operator.products <= 45
    plain = estimate_trace(operator, method="hutchinson")
    assert plain.products == 64
    assert found.standard_error < 0.02 * found.value < plain.standard_error


@pytest.mark.parametrize("noise", [0.2, pytest.param(0.6, marks=pytest.mark.slow)])
def test_the_interval_covers_the_trace_without_bias(noise):
    operator = coupled(noise)
    truth = float(operator.matrix.trace())
    runs = [estimate_trace(operator, seed=seed) for seed in range(400)]
    found = [run for run in runs if run.method == "strata"]
    assert len(found) >= 0.9 * len(runs)
    inside = [low <= truth <= high for low, high in (run.interval() for run in found)]
    assert np.mean(inside) >= 0.93
    values = np.array([run.value for run in found])
    assert abs(values.mean() - truth) < 4 * values.std() / math.sqrt(len(values))


def test_curvature_inside_of_the_tensors_is_left_to_others():
    operator = coupled(0.3, inside=0.9)
    assert estimate_trace(operator).method != "strata"


def test_one_group_has_the_error_of_one_mean():
    draws = np.random.default_rng(0).normal(size=9) ** 2
    value, error, freedom = sum_of_means([draws])
    plain = draws.std(ddof=1) / 3 * float(skewness(draws))
    assert (value, error, freedom) == pytest.approx((draws.mean(), plain, 8.0))
    assert sum_of_means([np.ones(4), np.zeros(4)]) == (1.0, 0.0, 6.0)


@pytest.mark.parametrize("seed", range(5))
def test_a_small_diagonal_is_computed_and_not_estimated(seed):
    draw = torch.randn(20, 20, generator=generator(seed), dtype=torch.float64)
    weights = torch.ones(20, 20).double()
    weights[:10, 10:] = weights[10:, :10] = 9.0
    matrix = (draw + draw.T).fill_diagonal_(1.0) * weights
    operator = InTensors(matrix)
    operator.space = {"one": matrix.new_zeros(10), "other": matrix.new_zeros(10)}
    found = estimate_trace(operator, seed=seed)
    assert found.status is Status.EXACT
    assert found.value == pytest.approx(20, rel=1e-12)
