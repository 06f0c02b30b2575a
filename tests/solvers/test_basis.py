from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.spectra import network_like, operator_with, within

from flatgauge.curvature.operator import DenseOperator
from flatgauge.memory import basis_room, graph_room
from flatgauge.solvers import basis as basis_module
from flatgauge.solvers.basis import (
    BLOCK,
    FEWEST_ROWS,
    Basis,
    Room,
    orthogonalized,
    room_for,
)
from flatgauge.solvers.ferry import Ferry
from flatgauge.solvers.krylov import Lanczos, random_start
from flatgauge.vectors import generator

WIDTH = 40
ROW = 8 * WIDTH


def orthonormal(count, seed=0):
    draw = torch.randn(WIDTH, count, generator=generator(seed), dtype=torch.float64)
    return torch.linalg.qr(draw)[0].T.contiguous()


def filled(count, device_rows, host_rows):
    basis = Basis(
        torch.zeros(WIDTH).double(), Room(device_rows * ROW, host_rows * ROW), WIDTH
    )
    rows = orthonormal(count)
    for row in rows:
        basis.append(row)
    return basis, rows


@given(
    device_rows=st.integers(0, 12),
    host_rows=st.integers(0, 20),
    share=st.floats(0.1, 1.0),
    keep=st.floats(0.0, 1.0),
)
def test_where_the_rows_are_changes_nothing(device_rows, host_rows, share, keep):
    capacity = max(device_rows + host_rows, FEWEST_ROWS)
    count = max(1, int(share * capacity))
    basis, rows = filled(count, device_rows, host_rows)
    assert basis.capacity == capacity
    assert len(basis) == count <= basis.allocated <= capacity
    assert basis.full == (count == capacity)
    vector = torch.randn(WIDTH, generator=generator(1), dtype=torch.float64)
    expected = vector - rows.T @ (rows @ vector)
    basis.remove_parts(vector, torch.empty_like(vector))
    assert torch.allclose(vector, expected, atol=1e-13)
    weights = np.linalg.qr(np.random.default_rng(0).normal(size=(count, count)))[0]
    weights = weights[:, : max(1, int(keep * count))]
    turned = torch.from_numpy(weights).T @ rows
    assert torch.allclose(basis.combine(weights), turned.T, atol=1e-13)
    basis.rotate(weights)
    assert len(basis) == len(turned)
    assert torch.allclose(basis.combine(np.eye(len(turned))), turned.T, atol=1e-13)
    # What was let go is room again.
    before = basis.allocated
    while len(basis) < count:
        basis.append(vector)
    assert basis.allocated == before


def test_rotations_go_piece_by_piece(monkeypatch):
    monkeypatch.setattr(basis_module, "BLOCK", 5 * 7 * 8)
    basis, rows = filled(7, 3, 10)
    weights = np.linalg.qr(np.random.default_rng(0).normal(size=(7, 4)))[0]
    basis.rotate(weights)
    expected = torch.from_numpy(weights).T @ rows
    assert torch.allclose(basis.combine(np.eye(4)), expected.T, atol=1e-13)


def test_blocks_never_exceed_the_room():
    basis, _ = filled(3, 3, 0)
    assert basis.capacity == FEWEST_ROWS
    basis, _ = filled(9, 9, 4)
    assert (basis.allocated, basis.offloaded) == (9, 0)
    basis.append(torch.zeros(WIDTH).double())
    assert (basis.allocated, basis.offloaded) == (13, 1)


def test_long_vectors_are_allocated_one_by_one(monkeypatch):
    monkeypatch.setattr(basis_module, "BLOCK", ROW)
    for count in (1, 4, 9):
        basis, _ = filled(count, 6, 20)
        assert basis.allocated == count
    assert BLOCK > ROW


def test_no_more_rows_than_dimensions():
    basis = Basis(torch.zeros(5), Room(10**6), most=3)
    basis.append(torch.zeros(5))
    assert (basis.capacity, basis.allocated) == (3, 3)


def test_the_room_follows_the_memory(monkeypatch):
    monkeypatch.setattr(basis_module, "available_memory", lambda: 1000)
    operator = DenseOperator(torch.eye(3))
    assert room_for(operator) == Room(500, 0)
    operator.memory = 10_000
    assert room_for(operator) == Room(3000, 0)
    meta = DenseOperator(torch.empty(3, 3, device="meta"))
    meta.memory = 10_000
    assert room_for(meta) == Room(3000, 500)


def test_long_vectors_on_a_gpu_have_room_before_graphs():
    gpu, cpu, budget = torch.device("cuda"), torch.device("cpu"), 10_000
    # Twelve vectors of the basis, and eight to work with, of which 5 % are left over.
    for vector, basis, graphs in ((10, 3000, 6500), (400, 4800, 2000), (900, 8000, 0)):
        assert basis_room(gpu, budget, vector) == basis
        assert graph_room(gpu, budget, vector) == pytest.approx(graphs)
        assert basis_room(cpu, budget, vector) == 3000
        assert graph_room(cpu, budget, vector) == 6500


@pytest.mark.parametrize(
    ("device_rows", "host_rows", "crowded_at"), [(3, 20, 12), (14, 20, 14), (4, 3, 7)]
)
def test_rows_in_host_memory_are_for_a_few_only(device_rows, host_rows, crowded_at):
    basis, rows = filled(1, device_rows, host_rows)
    while not basis.crowded:
        basis.append(rows[0])
    assert len(basis) == crowded_at


@pytest.mark.parametrize("device_rows", [0, 3, 14, 20])
def test_products_of_a_recurrence_leave_nothing_along_any_row(device_rows):
    """Along the two newest 1e8 times what is left, as at the end of a run."""
    count = 16
    basis, rows = filled(count, device_rows, count)
    sizes = torch.ones(count, dtype=torch.float64)
    sizes[-2:] = 1e8
    vector = torch.randn(WIDTH, generator=generator(2), dtype=torch.float64)
    outside = vector - rows.T @ (rows @ vector)
    found = orthogonalized(outside + rows.T @ sizes, rows[:0], basis)
    assert torch.allclose(found, outside, atol=1e-6)
    assert float((rows @ found).abs().max()) < 1e-14 * float(found.norm())


def test_deflated_vectors_take_their_part_of_it():
    operator = within(operator_with(network_like(50)), 20)
    start = random_start(operator, generator(0))
    vectors = torch.linalg.eigh(operator.matrix)[1]
    assert Lanczos(operator, start).basis.capacity == 20
    assert Lanczos(operator, start, vectors[:, -4:]).basis.capacity == 16


def test_nothing_is_ferried_on_a_cpu():
    rows = orthonormal(2)
    ferry = Ferry(rows)
    assert ferry.brought(rows) is rows
    copy = torch.zeros_like(rows)
    ferry.put(rows, copy)
    assert torch.equal(copy, rows)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnAGPU:
    @pytest.mark.parametrize("entries", [1, 7, 8, 9, 24, 100])
    def test_what_is_ferried_arrives(self, monkeypatch, entries):
        monkeypatch.setattr("flatgauge.solvers.ferry.BUFFER", 8 * 4)
        there = torch.randn(entries, device="cuda")
        ferry = Ferry(there)
        for _ in range(3):
            host = torch.zeros(entries)
            ferry.put(there, host)
            assert torch.equal(host, there.cpu())
            assert torch.equal(ferry.brought(host), there)
            there = there * 2

    def test_host_rows_are_those_of_a_basis(self):
        rows = orthonormal(9)
        basis = Basis(rows[0].cuda(), Room(3 * ROW, 20 * ROW), WIDTH)
        for row in rows:
            basis.append(row.cuda())
        assert [block.device.type for block in basis._blocks] == ["cuda", "cpu"]
        vector = torch.randn(WIDTH, dtype=torch.float64)
        expected = vector - rows.T @ (rows @ vector)
        found = vector.cuda()
        basis.remove_parts(found, torch.empty_like(found))
        assert torch.allclose(found.cpu(), expected, atol=1e-13)
        weights = np.linalg.qr(np.random.default_rng(0).normal(size=(9, 5)))[0]
        turned = torch.from_numpy(weights).T @ rows
        assert torch.allclose(basis.combine(weights).cpu(), turned.T, atol=1e-13)
        basis.rotate(weights)
        assert torch.allclose(basis.combine(np.eye(5)).cpu(), turned.T, atol=1e-13)
