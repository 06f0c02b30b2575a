from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flatgauge.solvers.student import skewness, standard_error


@pytest.mark.parametrize(
    ("draw", "mean", "least"),
    [
        (lambda random, shape: random.normal(size=shape), 0.0, 0.94),
        (lambda random, shape: random.choice([-1.0, 1.0], size=shape), 0.0, 0.93),
        (lambda random, shape: random.chisquare(3, size=shape), 3.0, 0.92),
        (lambda random, shape: random.chisquare(1, size=shape), 1.0, 0.88),
    ],
)
@pytest.mark.parametrize("count", [10, 32])
def test_two_standard_errors_hold_in_95_percent(draw, mean, least, count):
    singles = draw(np.random.default_rng(0), (count, 4000))
    error = standard_error(singles)
    share = np.mean(np.abs(singles.mean(axis=0) - mean) <= 1.96 * error)
    assert least <= share <= 0.99
    if count == 10:
        plain = singles.std(axis=0, ddof=1) / np.sqrt(count)
        assert np.mean(np.abs(singles.mean(axis=0) - mean) <= 1.96 * plain) < share


@settings(derandomize=True, max_examples=50, deadline=None)
@given(
    st.lists(st.floats(-1.0, 1.0), min_size=2, max_size=40),
    st.sampled_from([1e-150, 1e-3, 1.0, 1e6, 1e150]),
)
def test_the_error_is_finite_and_scales_with_the_estimates(singles, factor):
    values = np.round(np.array(singles), 3)
    error = standard_error(values)
    assert np.isfinite(error)
    assert error >= 0
    rounding = 1e-14 * factor * float(np.abs(values).max())
    scaled = pytest.approx(factor * error, rel=1e-6, abs=rounding)
    assert standard_error(factor * values) == scaled
    assert skewness(values) >= 1
    assert skewness(-values) == pytest.approx(skewness(values))


def test_equal_estimates_have_no_error():
    assert standard_error([2.0, 2.0, 2.0]) == 0.0
