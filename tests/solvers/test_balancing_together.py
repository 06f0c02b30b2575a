from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from flatgauge.errors import NonFiniteError, OptionError
from flatgauge.results import Status
from flatgauge.solvers import balancing_together
from flatgauge.solvers.balancing import balance
from flatgauge.solvers.balancing_together import balance_together


def lognormal(shape, spread, kept, seed):
    random = np.random.default_rng(seed)

    def drawn():
        each = np.exp(spread * random.normal(size=shape))
        return torch.from_numpy(each * (random.random(shape) < kept))

    return drawn(), drawn()


def reached(alpha, beta, found):
    """The objective at the scales that were found."""
    total = found.row_scale[:, None] + found.column_scale
    live = found.live_rows[:, None] & found.live_columns
    each = alpha * total.exp() + beta * (-total).exp()
    return float(each[live].sum())


def alone(monkeypatch):
    """Counts the problems that go alone."""
    found = []

    def counted(*problem):
        found.append(problem)
        return balance(*problem)

    monkeypatch.setattr(balancing_together, "balance", counted)
    return found


@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 10**6),
    st.integers(1, 9),
    st.integers(1, 9),
    st.sampled_from([1e-12, 1e-4, 0.3]),
)
def test_each_gets_what_it_gets_alone(seed, rows, columns, tol):
    problems = [
        lognormal((rows, columns), spread, kept, seed + number)
        for number, (spread, kept) in enumerate(
            [(2.0, 1.0), (3.0, 0.7), (1.0, 0.5), (2.0, 0.2), (0.0, 1.0), (1.0, 0.0)]
        )
    ]
    together = balance_together(problems, tol)
    for (alpha, beta), found in zip(problems, together, strict=True):
        exact = balance(alpha, beta)
        one = balance(alpha, beta, tol)
        assert found.status is Status.CONVERGED
        assert found.message == one.message
        assert 0 <= found.gap <= tol
        # The certificate holds.
        assert found.value * (1 - found.gap) <= exact.value * (1 + 1e-13)
        assert exact.value <= found.value * (1 + 1e-13)
        assert found.attained == one.attained
        assert torch.equal(found.live_rows, one.live_rows)
        assert torch.equal(found.live_columns, one.live_columns)
        for mine, theirs in (
            (found.row_scale, one.row_scale),
            (found.column_scale, one.column_scale),
        ):
            assert torch.equal(mine.isinf(), theirs.isinf())
            assert torch.equal(mine[mine.isinf()], theirs[theirs.isinf()])
        if found.attained:
            assert reached(alpha, beta, found) == pytest.approx(found.value, rel=1e-12)


@pytest.mark.parametrize("shape", [(20, 30), (30, 20), (7, 7), (1, 40), (40, 1)])
def test_dense_problems_are_solved_together(shape, monkeypatch):
    left = alone(monkeypatch)
    problems = [lognormal(shape, 2.0, 1.0, seed) for seed in range(5)]
    for (alpha, beta), found in zip(problems, balance_together(problems), strict=True):
        assert found.value == pytest.approx(balance(alpha, beta).value, rel=1e-12)
    assert not left


def test_dead_rows_and_columns_stay_in_the_batch(monkeypatch):
    left = alone(monkeypatch)
    problems = [lognormal((5, 6), 1.0, 1.0, seed) for seed in range(3)]
    alpha, beta = problems[1]
    alpha[1], beta[3] = 0.0, 0.0
    alpha[:, 2], beta[:, 4] = 0.0, 0.0
    problems[2][0].zero_()
    _, found, nothing = balance_together(problems)
    assert not left
    live = np.ix_([0, 2, 4], [0, 1, 3, 5])
    assert found.value == pytest.approx(balance(alpha[live], beta[live]).value)
    assert found.row_scale[1] == found.column_scale[2] == math.inf
    assert found.row_scale[3] == found.column_scale[4] == -math.inf
    assert not found.attained
    assert (nothing.value, nothing.gap, nothing.steps) == (0.0, 0.0, 0)


def test_rescaling_rows_and_columns_changes_nothing():
    problems = [lognormal((6, 4), 2.0, 1.0, seed) for seed in range(4)]
    factors = [lognormal((6, 4), 4.0, 1.0, 9)[0] for _ in range(2)]
    scale = (factors[0][:, :1] * factors[1][:1]) ** 2
    twins = [(alpha / scale, beta * scale) for alpha, beta in problems]
    for one, twin in zip(
        balance_together(problems), balance_together(twins), strict=True
    ):
        assert twin.value == pytest.approx(one.value, rel=1e-12)


def test_several_components_go_alone(monkeypatch):
    left = alone(monkeypatch)
    apart = torch.eye(2, dtype=torch.float64), 4 * torch.eye(2, dtype=torch.float64)
    dense = lognormal((2, 2), 1.0, 1.0, 0)
    found = balance_together([apart, dense, dense])
    assert found[0].value == pytest.approx(8.0, rel=1e-14)
    assert found[1].value == found[2].value
    assert len(left) == 1


@pytest.mark.parametrize("factor", [1e-150, 1e150])
def test_extreme_magnitudes(factor):
    problems = [lognormal((6, 5), 2.0, 1.0, seed) for seed in range(2)]
    scaled = [(factor * alpha, beta) for alpha, beta in problems]
    for one, other in zip(
        balance_together(problems), balance_together(scaled), strict=True
    ):
        assert other.value == pytest.approx(one.value * factor**0.5, rel=1e-12)


def test_entries_far_apart_are_solved_alone(monkeypatch):
    left = alone(monkeypatch)
    problems = [lognormal((6, 5), 60.0, 1.0, seed) for seed in range(2)]
    for found, one in zip(balance_together(problems), problems, strict=True):
        assert found.value == pytest.approx(balance(*one).value, rel=1e-12)
    assert left


def test_a_hard_one_does_not_spoil_the_others():
    hard = lognormal((6, 5), 60.0, 1.0, 0)
    easy = lognormal((6, 5), 1.0, 1.0, 1)
    first, second, third = balance_together([easy, hard, easy])
    assert first.value == third.value == pytest.approx(balance(*easy).value, rel=1e-12)
    assert second.value == pytest.approx(balance(*hard).value, rel=1e-12)


def test_too_few_steps_are_reported():
    band = torch.ones(60, 60, dtype=torch.float64).tril(1).triu(-1)
    pairs = [lognormal((60, 60), 3.0, 1.0, seed) for seed in range(2)]
    problems = [(band * alpha, band * beta) for alpha, beta in pairs]
    for found in balance_together(problems, max_steps=1):
        assert found.status is Status.NOT_CONVERGED
        assert "max_steps=1" in found.message


def test_bad_matrices_are_refused():
    good = lognormal((3, 3), 1.0, 1.0, 0)
    bad = good[0].clone()
    bad[1, 2] = math.nan
    with pytest.raises(NonFiniteError, match="alpha has a NaN"):
        balance_together([good, (bad, good[1])])
    with pytest.raises(OptionError, match="beta has a negative entry"):
        balance_together([good, (good[0], -good[1])])
    with pytest.raises(OptionError, match="tol=0"):
        balance_together([good, good], tol=0.0)


def test_large_problems_are_solved_as_they_come(monkeypatch):
    apart = alone(monkeypatch)
    monkeypatch.setattr(balancing_together, "SMALL", 6)
    monkeypatch.setattr(balancing_together, "TOGETHER", 12)
    waiting = []

    def problems():
        for seed in range(4):
            waiting.append(len(apart))
            yield lognormal((3, 4), 1.0, 1.0, seed)
            yield lognormal((2, 3), 1.0, 1.0, seed)

    found = balance_together(problems(), 1e-10)
    assert waiting == [0, 1, 2, 3]
    assert len(apart) == 4
    for (alpha, beta), one in zip(problems(), found, strict=True):
        assert one.value == pytest.approx(balance(alpha, beta, 1e-10).value, rel=1e-9)


def test_scales_hold_nothing_of_the_others():
    some = [lognormal((3, 4), 1.0, 1.0, seed) for seed in range(5)]
    for one in balance_together(some):
        for part in (one.row_scale, one.column_scale, one.live_rows):
            assert part.untyped_storage().nbytes() == part.nbytes


def test_what_balance_refuses_is_refused():
    some = [lognormal((3, 4), 9.0, 0.6, seed) for seed in range(5)]
    for one, alone in zip(
        balance_together(some, math.inf),
        [balance(*each, math.inf) for each in some],
        strict=True,
    ):
        assert (one.value == 0) == (alone.value == 0)
    with pytest.raises(OptionError):
        balance_together(some, 1e-9, max_steps=0)
