from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.spectra import exact, network_like, operator_with

from flatgauge.solvers.deflation import ceilings_of, deflate_from, first_pairs
from flatgauge.solvers.krylov import random_start
from flatgauge.vectors import generator


@pytest.mark.parametrize("sign", [1, -1])
def test_every_run_takes_its_fewest_steps(sign):
    operator, random = operator_with(network_like()), generator(0)
    (first,) = first_pairs(operator, (sign,), 1e-3, 300, random, least_steps=25)
    chain = deflate_from(operator, first, sign, [30, 1], 1e-3, 300, random)
    steps = [run.steps for run in chain.runs]
    assert steps[:2] == [25, 30]
    assert sum(steps) == operator.products
    true = exact(operator)
    expected = true[::-1][:3] if sign > 0 else true[:3]
    assert np.all(np.abs(chain.values - expected) <= chain.error_bounds)
    assert chain.values[:2] == pytest.approx(expected[:2], abs=1e-9)


def test_a_record_puts_back_what_was_deflated():
    operator, random = operator_with(network_like()), generator(7)
    (first,) = first_pairs(operator, (1,), 1e-12, 300, random)
    chain = deflate_from(operator, first, 1, [6, 6, 6], 1e-10, 300, random)
    # The same draws again, in the same order.
    again = generator(7)
    for run in chain.runs:
        start = random_start(operator, again)
        start = start / start.norm()
        points, weights = run.quadrature()
        assert list(points) == sorted(points)
        assert weights.sum() == pytest.approx(1.0, abs=1e-14)
        for power in range(8):
            image = torch.linalg.matrix_power(operator.matrix, power) @ start
            expected = torch.dot(start, image).item()
            assert (weights * points**power).sum() == pytest.approx(expected, rel=1e-9)


def test_one_run_gives_both_ends():
    operator = operator_with(network_like())
    top, bottom = first_pairs(operator, (1, -1), 1e-6, 300, generator(0))
    assert top.run == bottom.run
    assert top.run.steps == operator.products
    true = exact(operator)
    assert top.value == pytest.approx(true[-1], abs=1e-9)
    assert -bottom.value == pytest.approx(true[0], abs=1e-9)


@given(
    size=st.integers(5, 12),
    k=st.integers(1, 4),
    seed=st.integers(0, 10**6),
    mix=st.sampled_from([0.0, 1e-6, 1e-2, 0.3, 3.0]),
)
def test_no_eigenvalue_exceeds_its_ceiling(size, k, seed, mix):
    random = np.random.default_rng(seed)
    matrix = random.normal(size=(size, size))
    matrix = matrix + matrix.T
    true, eigenvectors = np.linalg.eigh(matrix)
    near = eigenvectors[:, ::-1][:, :k] + mix * random.normal(size=(size, k))
    basis, _ = np.linalg.qr(near)
    rest, ceilings = [], []
    for p in range(k):
        others = np.linalg.svd(basis[:, :p].T)[2][p:].T if p else np.eye(size)
        ceilings.append(np.linalg.eigvalsh(others.T @ matrix @ others)[-1])
        vector, before = basis[:, p], basis[:, : p + 1]
        image = matrix @ vector
        rest.append(image - before @ (before.T @ image))
    gram = np.array(rest) @ np.array(rest).T
    # Between the first vectors V^T A V is known from the residuals alone.
    small = basis.T @ matrix @ basis
    above = ceilings_of(small, gram, ceilings)
    assert np.all(true[::-1][:k] <= above + 1e-9)
    assert np.all(above <= ceilings[0] + 1e-9)
    if mix == 0.0:
        assert above == pytest.approx(true[::-1][:k], abs=1e-9)


def test_a_ceiling_below_makes_the_error_of_second_order():
    small, gram = np.diag([2.0, 1.5, 1.0]), np.diag([1e-6, 1e-6, 1e-6])
    above = ceilings_of(small, gram, [3.0, 3.0, 1.1])
    assert above[0] - 2.0 == pytest.approx(1e-6 / 0.9, rel=1e-2)
    assert above[1] - 1.5 == pytest.approx(1e-6 / 0.4, rel=1e-2)
    assert above[2] == 1.1


def test_only_the_last_run_goes_on_for_the_bounds():
    operator, random = operator_with(network_like()), generator(0)
    (first,) = first_pairs(operator, (1,), 5e-4, 300, random, runs=3)
    chain = deflate_from(operator, first, 1, [1, 1], 1e-3, 300, random)
    assert first.ceiling > 1.01 * first.value
    values, bounds = np.array(chain.values), np.array(chain.error_bounds)
    assert np.all(np.abs(values - exact(operator)[::-1][:3]) <= bounds)
    assert np.all(bounds <= 0.01 * values)
    assert np.all(bounds[:2] <= 1e-6 * values[:2])
