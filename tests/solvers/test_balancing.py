from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cases import KNOWN as KNOWN_ANSWERS
from support.descent import descended

from flatgauge.errors import NonFiniteError, OptionError
from flatgauge.results import Status
from flatgauge.solvers.balancing import balance

ANSWERS = KNOWN_ANSWERS
ALPHA = [[1, 2, 1 / 2], [1 / 4, 3, 1]]
BETA = [[1, 1 / 4, 4], [9, 1 / 9, 1]]
KNOWN = float(
    ANSWERS["closed_forms"][
        "ns17 alpha=[[1,2,1/2],[1/4,3,1]] beta=[[1,1/4,4],[9,1/9,1]]"
    ]["value"]
)
INFINITY = float("inf")


def matrix(values):
    return torch.as_tensor(np.asarray(values, dtype=float))


def solved(alpha, beta, **options):
    return balance(matrix(alpha), matrix(beta), **options)


def objective(alpha, beta, found):
    total = found.row_scale[:, None].numpy() + found.column_scale.numpy()
    return float((alpha * np.exp(total) + beta * np.exp(-total)).sum())


def rescaled(alpha, beta, seed, spread=4.0):
    random = np.random.default_rng(seed)
    rows = np.exp(spread * random.normal(size=(alpha.shape[0], 1)))
    columns = np.exp(spread * random.normal(size=(1, alpha.shape[1])))
    return alpha / (rows * columns) ** 2, beta * (rows * columns) ** 2


def band(size, spread, seed=0):
    random = np.random.default_rng(seed)
    near = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) <= 1
    return tuple(
        np.where(near, np.exp(spread * random.normal(size=(size, size))), 0.0)
        for _ in range(2)
    )


def lognormal(shape, spread, kept=1.0, seed=0):
    random = np.random.default_rng(seed)
    return tuple(
        np.exp(spread * random.normal(size=shape)) * (random.random(shape) < kept)
        for _ in range(2)
    )


def halves(coupling):
    alpha, beta = lognormal((40, 60), 1.0)
    weak = np.full((40, 60), coupling)
    weak[:20, :30] = weak[20:, 30:] = 1.0
    return alpha * weak, beta * weak


PROBLEMS = {
    "small": (np.array(ALPHA), np.array(BETA)),
    "dense": lognormal((60, 90), 3.0),
    "40 % left": lognormal((60, 90), 2.0, 0.4),
    "3 % left": lognormal((150, 200), 2.0, 0.03),
    "band": band(100, 3.0),
    "halves 1e-4": halves(1e-4),
    "halves 1e-12": halves(1e-12),
    "halves 1e-20": halves(1e-20),
}


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize(
    ("alpha", "beta", "value", "attained"),
    [
        (ALPHA, BETA, KNOWN, True),
        ([*ALPHA, [0, 0, 0]], [*BETA, [1, 2, 3]], KNOWN, False),
        ([*ALPHA, [1, 2, 3]], [*BETA, [0, 0, 0]], KNOWN, False),
        ([*ALPHA, [0, 0, 0]], [*BETA, [0, 0, 0]], KNOWN, True),
        ([[1, 1], [0, 1]], [[1, 0], [1, 1]], 4.0, False),
        ([[1, 1], [0, 1]], [[1, 1], [0, 1]], 6.0, True),
        ([[1, 1], [0, 1]], [[1, 0], [0, 1]], 4.0, False),
        ([[3.0]], [[12.0]], 12.0, True),
        ([[3.0]], [[0.0]], 0.0, False),
        ([[0.0]], [[0.0]], 0.0, True),
    ],
)
def test_known_values(alpha, beta, value, attained, turned):
    alpha, beta = (np.array(each, dtype=float) for each in (alpha, beta))
    found = solved(alpha.T, beta.T) if turned else solved(alpha, beta)
    assert found.value == pytest.approx(value, rel=1e-14)
    assert found.attained is attained
    assert found.status is Status.CONVERGED
    assert 0 <= found.gap <= 1e-12


@pytest.mark.parametrize("name", PROBLEMS)
def test_rescaling_rows_and_columns_changes_nothing(name):
    alpha, beta = PROBLEMS[name]
    found = solved(alpha, beta)
    assert found.status is Status.CONVERGED
    for seed in range(3):
        twin = solved(*rescaled(alpha, beta, seed))
        assert twin.value == pytest.approx(found.value, rel=1e-12)
        assert twin.attained == found.attained


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_value_lies_between_the_elementwise_and_the_layerwise_one(name):
    alpha, beta = PROBLEMS[name]
    found = solved(alpha, beta)
    assert 2 * np.sqrt(alpha * beta).sum() <= found.value * (1 + 1e-14)
    assert found.value <= 2 * np.sqrt(alpha.sum() * beta.sum())


@pytest.mark.parametrize("name", PROBLEMS)
def test_the_scales_reach_the_value_and_balance_the_matrices(name):
    alpha, beta = PROBLEMS[name]
    found = solved(alpha, beta)
    if not found.attained:
        assert name == "3 % left"
        return
    assert objective(alpha, beta, found) == pytest.approx(found.value, rel=1e-12)
    total = found.row_scale[:, None].numpy() + found.column_scale.numpy()
    excess = alpha * np.exp(total) - beta * np.exp(-total)
    assert np.abs(excess.sum(axis=0)).max() <= 1e-6 * found.value
    assert np.abs(excess.sum(axis=1)).max() <= 1e-6 * found.value


def test_sweeps_alone_would_not_solve_the_band():
    alpha, beta = band(100, 3.0)
    y = np.zeros(100)
    for _ in range(100):
        x = np.log((beta * np.exp(-y)).sum(1) / (alpha * np.exp(y)).sum(1)) / 2
        rows = x[:, None]
        y = np.log((beta * np.exp(-rows)).sum(0) / (alpha * np.exp(rows)).sum(0)) / 2
    swept = (alpha * np.exp(rows + y) + beta * np.exp(-rows - y)).sum()
    found = solved(alpha, beta)
    assert found.value < swept * (1 - 1e-6)
    assert found.steps < 20


def test_a_forest_has_the_elementwise_value():
    size = 200
    near = np.subtract.outer(np.arange(size), np.arange(size))
    chain = (near == 0) | (near == 1)
    alpha, beta = (each * chain for each in lognormal((size, size), 2.0))
    expected = 2 * np.sqrt(alpha * beta).sum()
    assert solved(alpha, beta).value == pytest.approx(expected, rel=1e-12)


def test_a_ring_has_a_geometric_mean():
    size = 50
    up, down = lognormal((size,), 3.0)
    alpha = np.diag(up)
    beta = np.roll(np.diag(down), 1, axis=0)
    mean = np.exp((np.log(up).sum() + np.log(down).sum()) / (2 * size))
    assert solved(alpha, beta).value == pytest.approx(2 * size * mean, rel=1e-12)


@pytest.mark.parametrize("shape", [(1, 50), (50, 1)])
def test_one_row_or_column_has_a_closed_form(shape):
    alpha, beta = lognormal(shape, 3.0)
    expected = 2 * np.sqrt(alpha * beta).sum()
    assert solved(alpha, beta).value == pytest.approx(expected, rel=1e-14)


def test_components_add_up():
    first, second = lognormal((5, 7), 2.0, seed=1), lognormal((6, 4), 2.0, seed=2)
    both = []
    for left, right in zip(first, second, strict=True):
        block = np.zeros((11, 11))
        block[:5, :7], block[5:, 7:] = left, right * 1e8
        both.append(block)
    expected = solved(*first).value + 1e8 * solved(*second).value
    assert solved(*both).value == pytest.approx(expected, rel=1e-12)


def test_dead_rows_and_columns_go_to_infinity():
    alpha, beta = lognormal((5, 6), 1.0)
    alpha[1], beta[3] = 0.0, 0.0
    alpha[:, 2], beta[:, 4] = 0.0, 0.0
    alpha[0] = beta[0] = 0.0
    found = solved(alpha, beta)
    assert found.row_scale[1] == INFINITY
    assert found.row_scale[3] == -INFINITY
    assert found.column_scale[2] == INFINITY
    assert found.column_scale[4] == -INFINITY
    assert found.row_scale[0] == 0.0
    live = np.ix_([2, 4], [0, 1, 3, 5])
    assert found.value == pytest.approx(
        solved(alpha[live], beta[live]).value, rel=1e-13
    )


def test_death_spreads():
    # The only beta of column 1 is in row 1, which has no alpha.
    found = solved([[1, 1], [0, 0]], [[1, 0], [1, 1]])
    assert found.value == pytest.approx(2.0, rel=1e-14)
    assert found.row_scale[1] == INFINITY
    assert found.column_scale[1] == -INFINITY
    assert not found.attained


@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 9), st.integers(1, 9))
def test_the_certificate_and_the_invariance_hold(seed, rows, columns):
    kept = [0.2, 0.5, 1.0][seed % 3]
    alpha, beta = lognormal((rows, columns), 2.0, kept, seed)
    tight, loose = solved(alpha, beta), solved(alpha, beta, tol=0.3)
    assert tight.status is loose.status is Status.CONVERGED
    assert loose.value * (1 - loose.gap) <= tight.value * (1 + 1e-13)
    assert tight.value <= loose.value * (1 + 1e-13)
    twin = solved(*rescaled(alpha, beta, seed))
    assert twin.value == pytest.approx(tight.value, rel=1e-12)


def test_powers_of_two_scale_the_value_exactly():
    alpha, beta = lognormal((20, 30), 2.0)
    found = solved(alpha * 2.0**-40, beta * 2.0**10)
    expected = solved(alpha, beta).value * 2.0**-15
    assert found.value == pytest.approx(expected, rel=1e-14)


@pytest.mark.parametrize("factor", [1e-150, 1e150])
def test_extreme_magnitudes(factor):
    alpha, beta = lognormal((6, 5), 2.0)
    found = solved(alpha * factor, beta)
    expected = solved(alpha, beta).value * factor**0.5
    assert found.value == pytest.approx(expected, rel=1e-12)


def test_float32_input_is_solved_in_float64():
    alpha, beta = (matrix(each).float() for each in lognormal((6, 5), 2.0))
    found = balance(alpha, beta)
    assert found.row_scale.dtype == torch.float64
    expected = balance(alpha.double(), beta.double()).value
    assert found.value == pytest.approx(expected, rel=1e-14)


def test_too_few_steps_are_reported():
    found = solved(*band(100, 3.0), max_steps=1)
    assert found.status is Status.NOT_CONVERGED
    assert "max_steps=1" in found.message
    best = solved(*band(100, 3.0)).value
    assert found.value > best
    assert found.value * (1 - found.gap) <= best


@pytest.mark.parametrize("kept", [1.0, 0.03])
def test_a_large_layer_takes_seconds(kept):
    found = solved(*lognormal((512, 784), 3.0, kept))
    assert found.status is Status.CONVERGED
    assert found.steps <= 6


def test_gradient_descent_agrees():
    found = descended(matrix(ALPHA), matrix(BETA), learning_rate=0.01, steps=2000)
    assert found == pytest.approx(KNOWN, rel=1e-9)


def test_gradient_descent_is_slow_or_diverges():
    alpha, beta = matrix(ALPHA), matrix(BETA)
    slow = descended(alpha * 1e-6, beta, learning_rate=0.1, steps=3)
    assert slow > 1.01 * KNOWN * 1e-3
    wild = descended(alpha, beta, learning_rate=10.0, steps=200)
    assert not wild < 1e3 * KNOWN


def test_bad_matrices_are_refused():
    good = matrix(ALPHA)
    for wrong, error, said in [
        (float("nan"), NonFiniteError, "beta has a NaN"),
        (INFINITY, NonFiniteError, "infinite"),
        (-0.5, OptionError, "beta has a negative entry, -0.5"),
    ]:
        bad = good.clone()
        bad[1, 2] = wrong
        with pytest.raises(error, match=said):
            balance(good, bad)


def test_bad_options_are_refused():
    with pytest.raises(OptionError, match="tol=0"):
        solved(ALPHA, BETA, tol=0.0)
