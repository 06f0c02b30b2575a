"""The sparse null space against numpy's dense rank."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
from hypothesis import given, settings

from flatgauge.symmetry.solve import compress, null_space

COEFFICIENTS = [1.0, -1.0, 2.0, 0.5, -1.0, 1 / 3]


@given(st.integers(0, 2**32 - 1), st.integers(2, 25), st.integers(0, 25))
@settings(max_examples=200, deadline=None)
def test_null_space_equals_the_dense_one(seed, count, height):
    """Equations of one to four terms, equal pairs and zeros, all at random."""
    random = np.random.default_rng(seed)
    rows = np.zeros((height, count))
    for row in rows:
        terms = min(count, random.choice([1, 2, 2, 2, 3, 4]))
        places = random.choice(count, terms, replace=False)
        row[places] = random.choice(COEFFICIENTS, terms)
    equal = random.integers(0, count, (2, random.integers(0, 4)))
    zero = random.integers(0, count, random.integers(0, 2))
    identity = np.eye(count)
    full = np.vstack([rows, identity[equal[0]] - identity[equal[1]], identity[zero]])

    solution = null_space(compress(rows), equal, zero)
    matrix = solution.matrix.toarray()
    assert solution.dimension == count - np.linalg.matrix_rank(full)
    assert np.abs(full @ matrix).max(initial=0) < 1e-9
    assert np.array_equal(matrix[solution.free], np.eye(solution.dimension))
    complement = identity[:, solution.determined]
    assert np.linalg.matrix_rank(np.hstack([matrix, complement])) == count


def test_a_contradiction_pins_its_whole_component():
    """x = 2 y, y = z, z = x has the solution 0 alone."""
    rows = compress(np.array([[1.0, -2.0, 0.0], [0.0, 1.0, -1.0], [-1.0, 0.0, 1.0]]))
    assert null_space(rows).dimension == 0


def test_no_equations():
    solution = null_space(compress(np.zeros((0, 3))))
    assert solution.dimension == 3
    assert solution.determined.size == 0


def test_equations_that_share_every_variable():
    """Neither peeling nor pairs help: the dense block does."""
    rows = compress(np.array([[1.0, 1.0, 1.0, 1.0], [1.0, -1.0, 2.0, 3.0]]))
    assert null_space(rows).dimension == 2
