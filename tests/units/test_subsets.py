"""Kinds of means, told by their values on subsets."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flatgauge.units.subsets import MeanKind, kind_of

NUMBERS = st.lists(
    st.floats(0.1, 5.0).map(lambda x: round(x, 3)), min_size=4, max_size=6, unique=True
)


def mean(values, weights):
    def value(subset):
        total = sum(weights[i] for i in subset)
        if total == 0:
            return math.nan
        return sum(weights[i] * values[i] for i in subset) / total

    return value


@given(NUMBERS)
def test_a_mean(values):
    one = mean(values, [1.0] * len(values))
    assert kind_of(one, len(values), 1e-9) is MeanKind.MEAN


@given(NUMBERS, st.floats(-2, 2))
def test_a_sum_with_a_constant(values, constant):
    one = lambda subset: constant + sum(values[i] for i in subset)  # noqa: E731
    assert kind_of(one, len(values), 1e-9) is MeanKind.SUM


@given(NUMBERS, st.integers(1, 5))
def test_weights(values, first):
    weights = [float(first + i % 3) for i in range(len(values))]
    assert kind_of(mean(values, weights), len(values), 1e-9) is MeanKind.WEIGHTED


def test_a_sample_of_no_weight_has_no_value():
    values = [1.0, 2.0, 4.0, 7.0]
    one = mean(values, [1.0, 0.0, 1.0, 1.0])
    assert kind_of(one, 4, 1e-9) is MeanKind.WEIGHTED


@pytest.mark.parametrize(
    "value",
    [
        lambda s: math.sqrt(sum((i + 1) ** 2 for i in s) / len(s)),
        lambda s: float(len(s)) ** 2,
        lambda s: float(max(s)),
        lambda s: sum(abs(i - j) for i in s for j in s) / len(s) ** 2,
        lambda s: math.nan if len(s) < 2 else 1.0 / len(s),
        lambda s: math.nan if len(s) == 2 else 1.0 + s[0],
    ],
    ids=["root", "pairs", "largest", "distances", "no single ones", "not two"],
)
def test_coupled(value):
    assert kind_of(value, 5, 1e-9) is MeanKind.COUPLED


def test_two_samples_show_a_sum():
    assert kind_of(lambda s: float(sum(s) + len(s)), 2, 1e-9) is MeanKind.SUM
    assert kind_of(lambda s: float(len(s)) ** 2, 2, 1e-9) is MeanKind.COUPLED
