"""Rank statistics: answers by hand, scipy's, what cannot be identified, and intervals."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from support.pages import measurement

import flatgauge as fg
from flatgauge.errors import OptionError
from flatgauge.rankings import RankStatistics
from flatgauge.vocabulary import Association, Status

CORRELATIONS = {
    Association.KENDALL: stats.kendalltau,
    Association.SPEARMAN: stats.spearmanr,
    Association.PEARSON: stats.pearsonr,
}
INFORMATION = Association.INFORMATION
FIXED, GRANULATED = Association.FIXED, Association.GRANULATED
MEAN, WORST = Association.MEAN_ERROR, Association.WORST_ERROR
# Each of two settings of width with each of depth.
SQUARE = {"width": [0, 1, 0, 1], "depth": [0, 0, 1, 1]}
# Two networks of each of two settings.
PAIRS = {"width": [0, 0, 1, 1]}


def found(*columns: Any, **more: Any) -> RankStatistics:
    return fg.rank_statistics(*columns, **{"resamples": 20, **more})


@pytest.mark.parametrize("size", [1e-200, 1e-30, 1.0, 1e200])
def test_a_correlation_does_not_hang_on_the_unit(size):
    values = size * np.array([1.0, 2.0, 3.0, 5.0])
    expected = stats.pearsonr([1, 2, 3, 5], [1, 2, 4, 3]).statistic
    assert found(values, [1, 2, 4, 3])["pearson"].value == pytest.approx(expected)


def test_differences_in_the_last_place_are_differences():
    unit = np.finfo(float).eps
    values = 1 + unit * np.array([0.0, 0.0, 1.0, 2.0])
    expected = stats.pearsonr([0, 0, 1, 2], [1, 2, 3, 4]).statistic
    assert found(values, [1, 2, 3, 4])["pearson"].value == pytest.approx(expected)


@pytest.mark.parametrize("kind", [list, np.array, torch.tensor])
def test_columns_of_any_kind_are_the_same(kind):
    columns = [1.0, 2.0, 3.0, 4.0], [2.0, 1.0, 3.0, 4.0]
    settings = {"width": [1.0, 1.0, math.nan, math.nan]}
    expected = found(*columns, {"width": [1, 1, None, None]})
    for scalars in (False, True):
        column = kind(settings["width"])
        given_settings = {"width": list(column) if scalars else column}
        one = found(*map(kind, columns), given_settings)
        assert one.to_dict() == expected.to_dict()
    assert expected[FIXED].value == 0.0
    assert expected[f"{GRANULATED}[width]"].value == 1.0


def test_networks_in_no_environment():
    values, targets = list(range(12)), [0, 1, 2, 3, *range(11, 3, -1)]
    labels = ["a"] * 4 + ["b"] * 4 + [None] * 4
    within = found(values[:8], targets[:8], environments=labels[:8])
    for none in (None, math.nan, ""):
        labels[8:] = [none] * 4
        every = found(values, targets, environments=labels)
        assert every[MEAN].value == within[MEAN].value
        assert every[MEAN].details["environments"] == 1


def test_no_networks_at_all():
    assert found([], [])["kendall"].status is Status.NOT_APPLICABLE


@pytest.mark.parametrize(
    ("columns", "more", "said"),
    [
        (([[1, 2], [3, 4]], [1, 2]), {}, "no number"),
        (([1, 2], [1, 2], {"width": [[1], [2]]}), {}, "a list as an entry"),
        (([1, 2], [1, 2]), {"samples": 0}, "samples= is 0"),
    ],
)
def test_columns_that_are_none_are_said_in_a_sentence(columns, more, said):
    with pytest.raises(OptionError, match=said):
        found(*columns, **more)


def entropy(share: float) -> float:
    return -share * math.log2(share) - (1 - share) * math.log2(1 - share)


def random_labels(seed: int = 0) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Networks at several shares of random labels, whose gap is mostly that share."""
    random = np.random.default_rng(seed)
    ratio, repeat = np.repeat(np.arange(6) / 5, 8), np.tile(np.arange(8), 6)
    gap = ratio + 0.05 * random.standard_normal(len(ratio))
    return {"ratio": ratio, "repeat": repeat}, gap


@pytest.mark.parametrize("name", CORRELATIONS)
@pytest.mark.parametrize("ties", [0, 3])
def test_correlations_are_those_of_scipy(name, ties):
    random = np.random.default_rng(ties)
    for count in (5, 40):
        x, y = random.standard_normal((2, count))
        if ties:
            x, y = np.round(x * ties), np.round(y + x)
        expected = CORRELATIONS[name](x, y).statistic
        assert found(x, y)[name].value == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("name", CORRELATIONS)
def test_a_resample_is_the_statistic_of_the_networks_that_were_drawn(name):
    random = np.random.default_rng(1)
    x, y = np.round(2 * random.standard_normal((2, 12)))
    draws = found(x, y, seed=5).draws[name]
    counts = np.random.default_rng(5).multinomial(12, np.full(12, 1 / 12), size=20)
    for drawn, own in zip(counts, draws, strict=True):
        again = CORRELATIONS[name](np.repeat(x, drawn), np.repeat(y, drawn)).statistic
        assert own == pytest.approx(again, abs=1e-12)


def test_granulated_kendall_by_hand():
    # Width moves the values 1 to 2 rightly and 3 to 2.5 wrongly, depth both rightly.
    own = found([1, 2, 3, 2.5], [1, 2, 3, 4], SQUARE)
    assert own[f"{GRANULATED}[width]"].value == 0
    assert own[f"{GRANULATED}[depth]"].value == 1
    assert own[GRANULATED].value == 0.5
    # Of three widths one pair of three is wrong: (2 - 1) / 3.
    one = found([1, 3, 2], [1, 2, 3], {"width": [8, 16, 32]})
    assert one[GRANULATED].value == pytest.approx(1 / 3)


def test_repeats_of_a_setting_are_not_compared_along_another_axis():
    own = found([1, 2, 3, 4], [2, 1, 4, 3], PAIRS)
    assert own[GRANULATED].value == 1
    assert own[FIXED].value == -1


def test_conditional_mutual_information_by_hand():
    targets = [1, 2, 3, 4]
    # Of 12 ordered pairs 4 tie in the values: given nothing a third is left unknown, given
    # the width all that can be known is.
    blind = found([0, 0, 1, 1], targets, PAIRS)[INFORMATION]
    assert blind.details["each"] == pytest.approx({"nothing": 2 / 3, "width": 0.0})
    assert blind.value == 0
    # One pair of six is wrong; within each width the order tells all, be it turned round.
    turned = found([1, 2, 4, 3], targets, PAIRS)[INFORMATION]
    nothing = 1 - entropy(1 / 6)
    assert turned.details["each"] == pytest.approx({"nothing": nothing, "width": 1.0})
    assert turned.value == pytest.approx(nothing)
    assert turned.details["given"] == "nothing"
    # Two settings that are all different fix every order: they say nothing of a measure.
    square = found([1, 2, 3, 4], targets, SQUARE)[INFORMATION]
    assert square.details["fixed_by"] == ["width and depth"]
    assert square.value == 1


def test_mutual_information_without_ties_is_that_of_a_table():
    random = np.random.default_rng(2)
    x, y = random.standard_normal((2, 15))
    y += x
    shape = random.integers(0, 2, 15)
    own = found(x, y, {"shape": shape})[INFORMATION].details["each"]
    i, j = np.nonzero(~np.eye(15, dtype=bool))
    for name, cells in (("nothing", 0 * i), ("shape", 2 * shape[i] + shape[j])):
        total = whole = 0.0
        for cell in np.unique(cells):
            inside = cells == cell
            own_sign, sign = ((c[i] > c[j])[inside] for c in (x, y))
            table = np.array(
                [
                    [((own_sign == a) & (sign == b)).sum() for b in (0, 1)]
                    for a in (0, 1)
                ]
            )
            share = table / table.sum()
            outer = share.sum(1, keepdims=True) * share.sum(0, keepdims=True)
            where = share > 0
            total += (
                inside.sum()
                * (share[where] * np.log(share[where] / outer[where])).sum()
            )
            edge = share.sum(0)[share.sum(0) > 0]
            whole -= inside.sum() * (edge * np.log(edge)).sum()
        assert own[name] == pytest.approx(total / whole, abs=1e-9)


def test_sign_errors_by_hand():
    environments = ["a"] * 4 + ["b"] * 3
    targets = [0, 1, 2, 3, 10, 11, 12]
    # Of the pairs of one network each 3 of 12 are wrong, and a tie counts half.
    own = found([0, 1, 2, 3, 1.5, 2.5, 10], targets, environments=environments)
    assert own[MEAN].value == own[WORST].value == 0.25
    own = found([0, 1, 2, 3, 1.5, 3, 10], targets, environments=environments)
    assert own[MEAN].value == pytest.approx(2.5 / 12)
    # A third environment, all wrong from a and from b.
    environments += ["c"] * 4
    values = [*own_values(), *[-1.0] * 4]
    own = found(values, [*targets, 20, 21, 22, 23], environments=environments)
    assert own[WORST].value == 1
    assert own[WORST].details["worst"] in ("a to c", "b to c")
    assert own[MEAN].value == pytest.approx((0.25 + 1 + 1) / 3)


def own_values() -> list[float]:
    return [0, 1, 2, 3, 1.5, 2.5, 10]


def test_pairs_that_chance_may_have_ordered_count_less():
    # Settings that differ in one hyperparameter are environments, too.
    column = {"width": [8] * 4 + [16] * 4}
    targets = [0.1, 0.1, 0.1, 0.1, 0.1, 0.2, 0.2, 0.9]
    values = [1, 1, 1, 1, 0, 0, 2, 2]
    even = found(values, targets, column)
    # Equal targets: a half each; then 4 of 4 wrong, and 8 right.
    assert even[MEAN].value == pytest.approx((4 * 0.5 + 4) / 16)
    samples = 400
    weights = []
    for apart in (0.1, 0.8):
        surely = max(1 - 2 * math.exp(-2 * samples * (apart / 2) ** 2), 0) ** 2
        weights.append(max(surely - 0.5, 0))
    assert 0 < weights[0] < weights[1]
    # Four pairs that are sure and eight that are not are about five.
    few = found(values, targets, column, samples=samples)[MEAN]
    assert few.status is Status.NOT_APPLICABLE
    column = {"width": [*column["width"], 16, 16]}
    values, targets = [*values, 2, 2], [*targets, 0.9, 0.9]
    weighted = found(values, targets, column, samples=samples)
    expected = 4 * weights[0] / (8 * weights[0] + 12 * weights[1])
    assert weighted[MEAN].value == pytest.approx(expected)


def test_a_measure_that_sees_the_share_of_random_labels_alone():
    design, gap = random_labels()
    blind = fg.rank_statistics(design["ratio"] ** 3, gap, design)
    assert blind["kendall"].value > 0.8
    at_fixed_ratio = blind[f"{GRANULATED}[repeat]"]
    assert (at_fixed_ratio.value, at_fixed_ratio.low, at_fixed_ratio.high) == (0, 0, 0)
    assert blind[INFORMATION].value == pytest.approx(0, abs=1e-12)
    # The same where repeats have no number.
    blind = fg.rank_statistics(design["ratio"], gap, {"ratio": design["ratio"]})
    assert blind[FIXED].value == 0
    # One that sees the gap itself is not said to be blind.
    seeing = fg.rank_statistics(gap + design["ratio"], gap, design)
    assert seeing[f"{GRANULATED}[repeat]"].low > 0.5
    assert seeing[INFORMATION].value > 0.5


NUMBERS = st.lists(st.integers(-8, 8), min_size=14, max_size=14)
MONOTONE = {
    "cube": lambda x: x**3 + x,
    "exponential": lambda x: np.exp(x / 2),
    "scaled": lambda x: 7 * x - 3,
}


@settings(max_examples=40, deadline=None, derandomize=True)
@given(values=NUMBERS, targets=NUMBERS, name=st.sampled_from(list(MONOTONE)))
def test_only_pearson_sees_more_than_the_order(values, targets, name):
    x, y = np.array(values, dtype=float), np.array(targets, dtype=float)
    column = {"width": [0] * 7 + [1] * 7, "depth": [0, 1] * 7}
    one, other = (found(v, y, column, resamples=2) for v in (x, MONOTONE[name](x)))
    for key, statistic in one.statistics.items():
        if key != Association.PEARSON:
            again = other[key].value
            assert again == pytest.approx(statistic.value, abs=1e-12), key
    down = found(-x, y, column, resamples=2)
    for key in (Association.KENDALL, Association.SPEARMAN, FIXED, GRANULATED):
        value = one[key].value
        assert down[key].value == (None if value is None else pytest.approx(-value))


def test_pearson_sees_more_than_the_order():
    x = np.arange(6.0)
    assert found(x, x)["pearson"].value == pytest.approx(1)
    assert found(np.exp(x), x)["pearson"].value < 0.9


def test_what_a_design_cannot_identify_is_told():
    def reason(own: RankStatistics, name: str) -> str:
        assert own[name].value is own[name].low is None
        assert own[name].status is Status.NOT_APPLICABLE
        return own[name].message

    values, targets = [1, 2, 3, 4], [1, 3, 2, 4]
    own = found(values, targets)
    assert "no hyperparameters" in reason(own, GRANULATED)
    assert "no hyperparameters" in reason(own, INFORMATION)
    assert "neither environments nor" in reason(own, MEAN)
    own = found(values, targets, {"width": [1, 2, 3, 4], "same": [0] * 4})
    assert "all networks have the same same" in reason(own, f"{GRANULATED}[same]")
    assert own[f"{GRANULATED}[width]"].value is not None
    assert own[GRANULATED].details["left_out"].keys() == {"same"}
    own = found(values, targets, {"width": [1, 1, 2, 2], "depth": [1, 1, 2, 2]})
    assert "share all others" in reason(own, f"{GRANULATED}[width]")
    own = found(values, [1, 1, 2, 2], {"repeat": [0, 1, 0, 1], "r": [0, 0, 1, 1]})
    assert "all have the same target" in reason(own, f"{GRANULATED}[repeat]")
    assert "one environment" in reason(
        found(values, targets, environments=["a"] * 4), WORST
    )
    few = found(values, targets, environments=["a", "a", "b", "b"])
    assert "has 12 effective pairs" in reason(few, WORST)
    for name in CORRELATIONS:
        assert "all values are the same" in reason(found([1] * 4, targets), name)
        assert "all targets are the same" in reason(found(values, [1] * 4), name)
    assert "all targets are the same" in reason(
        found(values, [1] * 4, SQUARE), INFORMATION
    )
    for name in Association:
        assert "fewer than two" in reason(found([1, None], [1, 2], PAIRS_OF_TWO), name)


PAIRS_OF_TWO = {"width": [0, 1]}


def test_what_is_missing_is_named_and_left_out():
    stopped = measurement("hessian-trace", 3.0, status=Status.NOT_CONVERGED)
    absent = measurement("hessian-trace", None, status=Status.NOT_APPLICABLE)
    fine = [measurement("hessian-trace", value) for value in (1.0, 2.0, 4.0)]
    own = found(
        [stopped, fine[0], absent, fine[1], None, math.nan, fine[2], 5],
        [0, 1, 0, 2, 0, 0, 3, math.inf],
    )
    assert own.networks == 3
    assert own.left_out == {
        "not converged": [0],
        "not applicable": [2],
        "no value": [4, 5],
        "no target": [7],
    }
    assert own["kendall"].value == 1
    said = "3 networks; left out: 1 (not converged), 1 (not applicable), 2 (no value)"
    assert said in str(own)


def test_columns_must_be_as_long_as_each_other():
    with pytest.raises(OptionError, match="'targets' has 2 entries, but there are 3"):
        found([1, 2, 3], [1, 2])
    with pytest.raises(OptionError, match="'width' has 1 entries"):
        found([1, 2], [1, 2], {"width": [1]})
    with pytest.raises(OptionError, match="'high' is no number"):
        found(["high", 2], [1, 2])


def test_intervals_hold_as_often_as_they_say():
    random, held = np.random.default_rng(3), 0
    # Kendall's τ of normal numbers with correlation r is 2/π asin r.
    r, repeats = 0.6, 200
    true = 2 / math.pi * math.asin(r)
    for seed in range(repeats):
        x, other = random.standard_normal((2, 40))
        y = r * x + math.sqrt(1 - r**2) * other
        own = fg.rank_statistics(x, y, resamples=200, seed=seed)["kendall"]
        held += own.low <= true <= own.high
    # Three standard errors of a share of 0.95 below it, and a percentile's own loss.
    assert 0.88 < held / repeats <= 1


def test_the_result_is_plain_and_the_same_for_the_same_seed():
    design, gap = random_labels()
    one, same, other = (
        fg.rank_statistics(gap**2, gap, design, resamples=50, seed=seed)
        for seed in (0, 0, 1)
    )
    assert one == same
    assert one["kendall"].low != other["kendall"].low
    plain = json.loads(json.dumps(one.to_dict(), allow_nan=False))
    assert plain["statistics"]["kendall"]["value"] == one["kendall"].value
    rows = {row["statistic"]: row for row in one.rows()}
    assert rows["pearson"]["status"] == "ESTIMATED"
    assert list(rows) == list(one.statistics)
    assert "resamples of the networks" in one.sentence()


def test_few_networks_have_intervals_that_are_not_trusted():
    own = found([1, 2, 3, 4, 5], [1, 3, 2, 5, 4])["kendall"]
    assert own.status is Status.BIASED
    assert "fewer than 10 networks" in own.message
