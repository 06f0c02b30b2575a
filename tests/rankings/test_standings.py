"""Which column wins, and when that is not more than chance."""

from __future__ import annotations

import numpy as np

import flatgauge as fg
from flatgauge.rankings import Standing, standings
from flatgauge.vocabulary import Association


def places(**columns: np.ndarray) -> dict[str, list[Standing]]:
    targets = np.arange(60.0)
    environments = ["a"] * 30 + ["b"] * 30
    found = {
        name: fg.rank_statistics(values, targets, environments=environments)
        for name, values in columns.items()
    }
    every = standings(found)
    return {
        name: [one for one in every if one.statistic == name]
        for name in dict.fromkeys(one.statistic for one in every)
    }


def noisy(size: float, seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    return np.arange(60.0) + size * random.standard_normal(60)


def test_a_difference_that_is_chance_is_a_tie():
    found = places(one=noisy(10, 0), other=noisy(10, 1), worse=noisy(200, 2))
    first, second, third = found["kendall"]
    assert {first.column, second.column} == {"one", "other"}
    assert (first.place, first.behind, first.verdict) == (1, 0, "best")
    assert second.tied
    assert second.low <= 0 <= second.behind
    assert second.overlaps
    assert "tied with the best (behind by 0.0" in second.verdict
    assert (third.column, third.place) == ("worse", 3)
    assert not third.tied
    assert not third.overlaps
    assert 0 < third.low <= third.behind <= third.high
    assert third.verdict.startswith("behind by 0.")


def test_what_both_have_in_common_does_not_count():
    base = noisy(60, 3)
    better = base + 2 * (np.arange(60) - 30)
    first, second = places(base=base, better=better)["kendall"]
    assert (first.column, second.column) == ("better", "base")
    # Each by itself is uncertain, the difference is not.
    assert second.overlaps
    assert not second.tied


def test_equal_columns_tie_and_small_errors_are_good():
    found = places(one=noisy(5, 0), same=noisy(5, 0) * 2, bad=-noisy(5, 0))
    first, second, third = found[Association.MEAN_ERROR]
    assert {first.column, second.column} == {"one", "same"}
    assert second.behind == 0
    assert second.tied
    assert third.column == "bad"
    assert third.behind > 0.5


def test_columns_without_a_value_have_no_place():
    found = places(one=noisy(5, 0), constant=np.zeros(60))
    assert [one.column for one in found["kendall"]] == ["one"]
