from __future__ import annotations

import numpy as np
import pytest
import torch

from flatgauge.solvers.deflation import chain_from, first_pairs
from flatgauge.solvers.krylov import random_start
from flatgauge.vectors import generator
from solvers.spectra import exact, network_like, operator_with


@pytest.mark.parametrize("sign", [1, -1])
def test_every_run_takes_its_fewest_steps(sign):
    operator, random = operator_with(network_like()), generator(0)
    (first,) = first_pairs(operator, (sign,), 1e-3, 300, random, least_steps=25)
    chain = chain_from(operator, first, sign, [30, 1], 1e-3, 300, random)
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
    chain = chain_from(operator, first, 1, [6, 6, 6], 1e-10, 300, random)
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
