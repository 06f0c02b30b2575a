"""Lanczos runs whose basis is full before they end."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.spectra import exact, network_like, operator_with, tridiagonalize, within

from flatgauge.results import Status
from flatgauge.solvers import krylov
from flatgauge.solvers.basis import Basis, Room
from flatgauge.solvers.density import spectral_density
from flatgauge.solvers.krylov import Lanczos, random_start
from flatgauge.solvers.lanczos import eigenvalues, largest_eigenvalue
from flatgauge.solvers.spectrum import solve_spectrum
from flatgauge.vectors import generator

BULK = list(np.linspace(0.0, 1.0, 97))
SPECTRA = {
    "network": list(network_like()),
    "dominant negative": [-5.0, 3.0, 2.0, *BULK],
    "tie 1e-6": [2.0, 2.0 - 1e-6, 1.5, *BULK],
    "tie 1e-3": [2.0, 2.0 - 1e-3, 1.5, *BULK],
    "no gap": list(np.linspace(0.0, 2.0, 100)),
    "triple": [2.0, 2.0, 2.0, *BULK],
    "negative": list(-np.linspace(0.5, 3.0, 100)),
}


def run_of(operator, steps, rows, signs=(1, -1), seed=0):
    """A run of so many steps, with a third of the rows in the room of the host."""
    size = operator.dimension * operator.matrix.element_size()
    room = Room(rows // 3 * size, (rows - rows // 3) * size)
    start = random_start(operator, generator(seed))
    lanczos = Lanczos(operator, start, None, 0.0, signs, room)
    for _ in range(steps):
        if not lanczos.exhausted:
            lanczos.step()
    return lanczos


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("signs", [(1,), (-1,), (1, -1)])
@pytest.mark.parametrize("rows", [6, 7, 13])
def test_the_recurrence_holds_and_the_basis_is_orthonormal(dtype, signs, rows):
    operator = operator_with(network_like(), dtype=dtype)
    lanczos = run_of(operator, 40, rows, signs)
    assert lanczos.restarted
    assert lanczos.steps == operator.products == 40
    count = len(lanczos.basis)
    assert count <= rows
    assert lanczos.basis.offloaded <= rows - rows // 3
    basis = lanczos.combine(np.eye(count)).double()
    eps = torch.finfo(dtype).eps
    assert torch.allclose(basis.T @ basis, torch.eye(count).double(), atol=50 * eps)
    values, vectors = lanczos.ritz()
    projected = basis.T @ operator.matrix.double() @ basis
    rebuilt = vectors @ np.diag(values) @ vectors.T
    assert np.abs(projected.numpy() - rebuilt).max() <= 400 * eps
    ritz = lanczos.combine(vectors[:, :1])[:, 0].double()
    residual = operator.matrix.double() @ ritz - values[0] * ritz
    stated = lanczos.residual(vectors[:, 0]).double()
    assert torch.allclose(residual, stated, atol=100 * eps)


@pytest.mark.parametrize("rows", [6, 9, 14])
def test_extremes_only_go_outwards(rows):
    operator = operator_with(network_like())
    true = exact(operator)
    lows, highs = [], []
    for steps in range(1, 40):
        values, _ = run_of(operator, steps, rows, (1,)).ritz()
        lows.append(values[0])
        highs.append(values[-1])
    assert np.all(np.diff(highs) >= -1e-12)
    assert np.all(np.diff(lows) <= 1e-12)
    assert highs[-1] == pytest.approx(true[-1], abs=1e-12)


@pytest.mark.parametrize("rows", [6, 10, 30])
@pytest.mark.parametrize("both", [False, True])
def test_values_are_those_of_unrestricted_runs(rows, both):
    for name, values in SPECTRA.items():
        plain = operator_with(values)
        free = largest_eigenvalue(plain, tol=1e-8, both=both)
        narrow = within(operator_with(values), rows)
        tight = largest_eigenvalue(narrow, tol=1e-8, both=both, max_steps=3000)
        assert tight.status is Status.CONVERGED, name
        assert tight.value == pytest.approx(free.value, abs=1e-7), name
        assert tight.products == narrow.products >= free.products
        if both:
            assert tight.smallest == pytest.approx(free.smallest, abs=1e-7), name


def test_within_the_budget_nothing_changes():
    values = network_like()
    free = largest_eigenvalue(operator_with(values), tol=1e-8)
    held = largest_eigenvalue(within(operator_with(values), 40), tol=1e-8)
    assert held.alphas == free.alphas
    assert (held.value, held.error_bound) == (free.value, free.error_bound)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", SPECTRA)
@pytest.mark.parametrize("rows", [6, 9])
def test_the_error_never_exceeds_its_bound(name, dtype, rows):
    operator = within(operator_with(SPECTRA[name], dtype=dtype), rows)
    true = exact(operator)
    for tol in (1e-1, 1e-3, 1e-5):
        for seed in range(8):
            found = largest_eigenvalue(operator, tol=tol, seed=seed, max_steps=100)
            assert abs(found.value - true[-1]) <= found.error_bound
            assert abs(found.smallest - true[0]) <= found.smallest_error_bound


@settings(max_examples=25)
@given(
    rows=st.integers(6, 20),
    steps=st.integers(1, 60),
    seed=st.integers(0, 10**6),
    power=st.floats(0.2, 3.0),
    negative=st.floats(0.0, 1.0),
)
def test_every_step_of_every_spectrum_is_within_its_bound(
    rows, steps, seed, power, negative
):
    random = np.random.default_rng(seed)
    sizes = random.uniform(size=60) ** (1 / power)
    values = np.where(random.uniform(size=60) < negative, -sizes, sizes)
    operator = within(operator_with(values), rows)
    found = largest_eigenvalue(operator, tol=1e-14, max_steps=steps, seed=seed)
    true = exact(operator)
    assert abs(found.value - true[-1]) <= found.error_bound
    assert abs(found.smallest - true[0]) <= found.smallest_error_bound


@pytest.mark.slow
@pytest.mark.parametrize("which", ["largest", "smallest", "both"])
def test_several_eigenvalues(which):
    for name in ("network", "triple", "dominant negative"):
        operator = within(operator_with(SPECTRA[name]), 14)
        true = exact(operator)
        ends = {"largest": true[::-1][:3], "smallest": true[:3]}
        expected = ends.get(which, np.concatenate(list(ends.values())))
        for seed in range(3):
            found = eigenvalues(operator, 3, which, 1e-6, 3000, seed)
            assert found.status is Status.CONVERGED
            assert np.all(np.abs(found.values - expected) <= found.error_bounds)
            assert found.values == pytest.approx(expected, abs=1e-8)


def test_an_invariant_subspace_is_noticed_after_a_restart():
    values = [*np.arange(1.0, 9.0)] + [0.0] * 30
    operator = operator_with(values)
    lanczos = run_of(operator, 500, 6)
    assert lanczos.restarted
    assert lanczos.ritz()[0][-1] == pytest.approx(8.0, abs=1e-12)


def test_densities_stop_where_memory_does():
    operator = within(operator_with(network_like()), 12)
    found = spectral_density(operator, probes=3, steps=30)
    assert found.products == operator.products == 36
    assert "12 points" in found.message
    free = operator_with(network_like())
    assert found.moment(3) == spectral_density(free, 3, 12).moment(3)
    assert tridiagonalize(operator, steps=30).steps == 12


def test_a_spectrum_keeps_what_came_before_the_restarts():
    operator = within(operator_with(network_like()), 9)
    found = solve_spectrum(operator, k=2, probes=4, steps=30, tol=1e-8)
    true = exact(operator)
    assert found.largest.status is found.smallest.status is Status.CONVERGED
    assert found.largest.values == pytest.approx(true[::-1][:2], abs=1e-9)
    assert found.smallest.values == pytest.approx(true[:1], abs=1e-9)
    assert found.products == operator.products
    assert found.density.weights.sum(dim=1).numpy() == pytest.approx(np.ones(4))
    free = solve_spectrum(operator_with(network_like()), 2, 4, 9, 1e-8)
    one, other = found.density.moment(2), free.density.moment(2)
    assert one == pytest.approx(other, rel=0.05)


def test_a_run_restarts_before_it_goes_on_in_host_memory(monkeypatch):
    """Few vectors on the device: an eigenvalue restarts, a density takes its steps."""
    operator = operator_with(network_like())
    size = operator.dimension * operator.matrix.element_size()
    monkeypatch.setattr(krylov, "room_for", lambda _: Room(14 * size, 80 * size))
    taken: list[int] = []
    append = Basis.append
    monkeypatch.setattr(
        Basis, "append", lambda self, v: (append(self, v), taken.append(len(self)))
    )
    found = largest_eigenvalue(operator, tol=1e-10, both=True)
    assert found.value == pytest.approx(exact(operator)[-1], rel=1e-9)
    assert found.products > max(taken) == 14
    free = spectral_density(operator, probes=2, steps=30)
    assert max(taken) == free.nodes.shape[1] == 30


@pytest.mark.parametrize(
    ("count", "signs", "kept"),
    [
        (6, (1,), [0, 3, 4, 5]),
        (6, (-1,), [0, 1, 2, 5]),
        (6, (1, -1), [0, 1, 4, 5]),
        (13, (1, -1), [0, 1, 2, 3, 9, 10, 11, 12]),
    ],
)
def test_both_ends_are_kept(count, signs, kept):
    assert krylov._extremes(count, signs) == kept


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("rows", [(2, 30), (2, 6), (0, 9)])
def test_offloaded_and_restarted_on_a_gpu(dtype, rows, monkeypatch):
    host = operator_with(network_like(), dtype=dtype)
    operator = type(host)(host.matrix.cuda())
    size = operator.dimension * operator.matrix.element_size()
    room = Room(rows[0] * size, rows[1] * size)
    monkeypatch.setattr(krylov, "room_for", lambda _: room)
    found = largest_eigenvalue(operator, tol=1e-5, both=True)
    true = exact(host)
    assert abs(found.value - true[-1]) <= found.error_bound
    assert abs(found.smallest - true[0]) <= found.smallest_error_bound
    assert found.status is found.smallest_status is Status.CONVERGED
