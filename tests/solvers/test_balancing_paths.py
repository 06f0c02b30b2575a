"""Every way through the balancing solver ends at the same place."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components

from flatgauge.results import Status
from flatgauge.solvers import balancing_schur, balancing_support, balancing_terms
from flatgauge.solvers.balancing import balance
from flatgauge.solvers.balancing_support import find_support
from fuzz.balancing import balanced

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def lognormal(shape, spread, kept=1.0, seed=0):
    random = np.random.default_rng(seed)
    return tuple(
        np.exp(spread * random.normal(size=shape)) * (random.random(shape) < kept)
        for _ in range(2)
    )


def scaled(alpha, beta, spread, seed=0):
    random = np.random.default_rng(seed)
    scale = np.exp(
        spread * np.add.outer(*(random.normal(size=size) for size in alpha.shape))
    )
    return alpha * scale, beta / scale


def solved(alpha, beta, **options):
    return balance(torch.as_tensor(alpha), torch.as_tensor(beta), **options)


PROBLEMS = {
    "dense": lognormal((40, 70), 3.0),
    "tall": lognormal((200, 35), 2.0),
    "half left": lognormal((60, 50), 2.0, 0.5),
    "few left": lognormal((60, 80), 1.0, 0.06),
    "rescaled": scaled(*lognormal((40, 70), 1.0), 3.0),
    "far apart": scaled(*lognormal((50, 40), 1.0), 15.0),
    "small and large": (1e-120 * lognormal((40, 70), 3.0)[0], 1e90 * np.ones((40, 70))),
}


@pytest.mark.parametrize("name", PROBLEMS)
def test_a_plain_solver_in_numpy_agrees(name):
    alpha, beta = PROBLEMS[name]
    found = solved(alpha, beta)
    assert found.status is Status.CONVERGED
    assert found.value == pytest.approx(balanced(alpha, beta), rel=1e-11)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize(
    ("module", "constant", "value"),
    [
        (balancing_schur, "COLUMNS_A_STEP", 1),
        (balancing_schur, "COLUMNS_A_STEP", 10**9),
        (balancing_terms, "FAR", 0.0),
        (balancing_terms, "SWEEPS", 1),
    ],
)
def test_no_threshold_changes_the_value(name, module, constant, value, monkeypatch):
    expected = solved(*PROBLEMS[name])
    monkeypatch.setattr(module, constant, value)
    found = solved(*PROBLEMS[name])
    assert found.status is Status.CONVERGED
    assert found.value == pytest.approx(expected.value, rel=2e-12)


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("tol", [1e-8, 1e-4, 1e-1])
def test_looser_gaps_hold(name, tol):
    best, loose = solved(*PROBLEMS[name]), solved(*PROBLEMS[name], tol=tol)
    assert loose.gap <= tol
    assert loose.value * (1 - loose.gap) <= best.value * (1 + 1e-13)
    assert best.value <= loose.value * (1 + 1e-13)


@settings(max_examples=300)
@given(
    st.integers(0, 10**6),
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from([0.15, 0.3, 0.5, 0.8, 1.0]),
)
def test_the_support_is_that_of_the_whole_graph(seed, rows, columns, kept):
    random = np.random.default_rng(seed)
    upper, lower = (random.random((rows, columns)) < kept for _ in range(2))
    patterns = torch.from_numpy(upper), torch.from_numpy(lower)
    found = find_support(*patterns)
    with mock.patch.object(balancing_support, "is_connected", return_value=False):
        slow = find_support(*patterns)
    for name in ("rows", "columns", "row_labels", "column_labels", "row_limits"):
        one, other = getattr(found, name), getattr(slow, name)
        assert torch.equal(one.nan_to_num(nan=9.0), other.nan_to_num(nan=9.0))
    assert (found.components, found.attained) == (slow.components, slow.attained)

    graph = np.zeros((rows + columns,) * 2)
    graph[:rows, rows:], graph[rows:, :rows] = upper, lower.T
    _, labels = connected_components(csr_matrix(graph), connection="strong")
    inside = labels[:rows, None] == labels[rows:]
    for pattern in (upper, lower):
        stays = torch.zeros(rows, columns, dtype=torch.bool)
        part = found.part(torch.from_numpy(pattern))
        stays[found.rows[:, None], found.columns] = part
        assert np.array_equal(stays.numpy(), pattern & inside)
    every = (upper & ~inside).any() or (lower & ~inside).any()
    assert found.attained == (not every)


@settings(max_examples=200)
@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 30))
def test_only_one_component_counts_as_connected(seed, rows, columns):
    random = np.random.default_rng(seed)
    kept = random.choice([0.05, 0.1, 0.2, 0.5])
    upper, lower = (random.random((rows, columns)) < kept for _ in range(2))
    graph = np.zeros((rows + columns,) * 2)
    graph[:rows, rows:], graph[rows:, :rows] = upper, lower.T
    count, _ = connected_components(csr_matrix(graph), connection="strong")
    patterns = torch.from_numpy(upper), torch.from_numpy(lower)
    # Long ways are left to SciPy, and short ones are all proofs.
    assert count == 1 or not balancing_support.is_connected(*patterns)
    if count == 1 and kept >= 0.2:
        assert balancing_support.is_connected(*patterns)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dead", [0, 17])
def test_no_matrix_goes_to_the_host(device, dead, monkeypatch):
    alpha, beta = (torch.as_tensor(m, device=device) for m in lognormal((60, 90), 2.0))
    alpha[:dead] = 0.0
    to_host, sizes = torch.Tensor.cpu, []

    def watched(tensor):
        sizes.append(tensor.numel())
        return to_host(tensor)

    monkeypatch.setattr(torch.Tensor, "cpu", watched)
    found = balance(alpha, beta)
    assert max(sizes) <= 90
    assert found.row_scale.device.type == found.column_scale.device.type == "cpu"
    assert found.attained == (not dead)


@pytest.mark.gpu
@pytest.mark.parametrize("tol", [1e-12, 1e-4])
@pytest.mark.parametrize("name", PROBLEMS)
def test_a_gpu_gives_what_the_host_gives(name, tol):
    host = [torch.as_tensor(part) for part in PROBLEMS[name]]
    device = [part.cuda() for part in host]
    expected, found = balance(*host, tol=tol), balance(*device, tol=tol)
    assert found.status is Status.CONVERGED
    assert found.value == pytest.approx(expected.value, rel=max(1e-10, tol))
    assert found.attained == expected.attained
    assert found.row_scale.device.type == found.column_scale.device.type == "cpu"
    if tol == 1e-12 and name != "few left":
        sums = [(f.row_scale[:, None] + f.column_scale) for f in (expected, found)]
        assert torch.allclose(*sums, atol=1e-5)
