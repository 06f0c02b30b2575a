from __future__ import annotations

import numpy as np
import pytest

from flatgauge.solvers import tridiagonal
from flatgauge.solvers.tridiagonal import FEW_ROWS, diagonalized


def example(rows):
    random = np.random.default_rng(rows)
    return random.normal(size=rows), random.uniform(0.1, 1.0, rows - 1)


def dense(diagonal, beside):
    return np.diag(diagonal) + np.diag(beside, 1) + np.diag(beside, -1)


def check(diagonal, beside):
    values, vectors = diagonalized(list(diagonal), list(beside))
    rows, scale = len(diagonal), np.abs(values).max()
    assert (np.diff(values) >= 0).all()
    rest = dense(diagonal, beside) @ vectors - vectors * values
    assert np.abs(rest).max() <= 1e-14 * rows * scale
    assert np.abs(vectors.T @ vectors - np.eye(rows)).max() <= 1e-14 * rows


@pytest.mark.parametrize("rows", [1, 2, 3, FEW_ROWS, FEW_ROWS + 1, 200])
def test_values_and_vectors(rows):
    check(*example(rows))


@pytest.mark.parametrize("rows", [FEW_ROWS, FEW_ROWS + 1])
@pytest.mark.parametrize("low", [-12, -3])
def test_graded_matrices(rows, low):
    diagonal = np.logspace(0, low, rows)
    check(diagonal, 0.3 * np.sqrt(diagonal[1:] * diagonal[:-1]))


def test_where_iterations_fail_there_is_another_way(monkeypatch):
    monkeypatch.setattr(tridiagonal, "_stev", lambda d, e: (None, None, 3))
    check(*example(5))
