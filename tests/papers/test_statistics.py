"""The statistics of the comparisons, by hand."""

from __future__ import annotations

import math

import pytest

from papers.rangamani2019.statistics import (
    compare,
    holm,
    line,
    line_within,
    sign_flip,
    spread,
    t_test,
)


def test_sign_flip_of_equal_signs_is_the_smallest_possible():
    assert sign_flip([1.0, 2.0, 3.0, 4.0, 5.0]) == 2 / 32
    assert sign_flip([-1.0, -2.0, -3.0, -4.0, -5.0]) == 2 / 32
    assert sign_flip([0.3]) == 1.0


def test_sign_flip_by_hand():
    # Sums of ±1 ±2 ±4: 7, 5, 3, 1 and their negatives; 5 = -1 + 2 + 4.
    assert sign_flip([-1.0, 2.0, 4.0]) == 4 / 8
    # Sums of ±1 ±1 ±1: |3| twice and |1| six times.
    assert sign_flip([1.0, 1.0, -1.0]) == 1.0


def test_sign_flip_counts_ties_in_spite_of_rounding():
    # |0.3 - 0.1 - 0.2| is rounding in the sum and 0 in truth: it equals itself.
    assert sign_flip([0.1, 0.2, -0.3]) == 1.0
    # 0.1 + 0.2 and 0.3 differ in the last bit; both choices below count.
    assert sign_flip([0.1, 0.2, 0.3]) == 2 / 8


def test_sign_flip_of_many_pairs():
    # As many choices have a sum of 18 or more as have at most one wrong sign of 20.
    assert sign_flip([1.0] * 19 + [-1.0]) == 2 * 21 / 2**20


def test_holm_by_hand():
    # 3 × 0.01, then 2 × 0.02, then the larger of 0.04 and 1 × 0.03.
    assert holm([0.02, 0.01, 0.03]) == [0.04, 0.03, 0.04]
    assert holm([0.6, 0.7]) == [1.0, 1.0]
    assert holm([]) == []


def test_t_test_by_hand():
    # Mean 2, deviation 1, n = 3: t = 2√3, and with two degrees of freedom
    # p = 1 - t / √(2 + t²).
    t = 2 * math.sqrt(3)
    assert t_test([1.0, 2.0, 3.0]) == pytest.approx(1 - t / math.sqrt(2 + t * t))
    assert t_test([1.0]) is None
    assert t_test([2.0, 2.0]) is None


def test_compare_by_hand():
    small = [math.log(v) for v in (1.0, 4.0, 2.0)]
    large = [math.log(v) for v in (100.0, 100.0, 1.0)]
    found = compare(small, large)
    assert found.small == pytest.approx(2.0)
    assert found.large == pytest.approx(10_000 ** (1 / 3))
    assert found.ratio == pytest.approx(1250 ** (1 / 3))
    assert found.orders == pytest.approx(math.log10(1250) / 3)
    assert (found.smaller, found.small_is_smaller, found.pairs) == ("small", 2, 3)
    # |ln 100 + ln 25 ± ln 2|: all but the last two flips are at least as far out.
    assert found.sign_flip == 4 / 8


def test_compare_leaves_out_what_is_missing():
    found = compare([0.0, None, 0.0], [1.0, 1.0, None])
    assert (found.pairs, found.left_out) == (1, 2)
    empty = compare([None], [1.0])
    assert (empty.pairs, empty.left_out, empty.ratio) == (0, 1, None)
    assert (empty.orders, empty.smaller) == (None, None)


def test_lines_by_hand():
    found = line([(0.0, 0.0), (1.0, 1.0), (2.0, 0.0)])
    assert found is not None
    assert (found.slope, found.r_squared) == (0.0, 0.0)
    assert line([(1.0, 2.0), (1.0, 3.0)]) is None
    assert line([]) is None
    # Between the groups the slope is 10, within each it is -1.
    groups = [[(0.0, 1.0), (1.0, 0.0)], [(10.0, 101.0), (11.0, 100.0)], []]
    within = line_within(groups)
    assert within is not None
    assert within.slope == pytest.approx(-1)
    assert within.r_squared == pytest.approx(1)


def test_spread():
    assert spread([1.0, 2.0, 6.0]) == (3.0, pytest.approx(math.sqrt(7)))
    assert spread([4.0]) == (4.0, 0.0)
