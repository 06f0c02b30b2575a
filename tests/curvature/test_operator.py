from __future__ import annotations

import pytest
import torch
from support.cases import assert_close

from flatgauge.curvature import operator
from flatgauge.curvature.operator import DenseOperator
from flatgauge.errors import OptionError, VectorError

MATRIX = torch.tensor([[2.0, 1.0, 0.0], [1.0, -3.0, 0.5], [0.0, 0.5, 1.0]]).double()


def test_one_vector_and_several():
    operator = DenseOperator(MATRIX)
    units = [{"x": unit} for unit in torch.eye(3).double()]
    assert torch.equal((operator @ units[1])["x"], MATRIX[:, 1])
    assert_close(torch.stack([image["x"] for image in operator @ units], 1), MATRIX)
    assert operator @ [] == []
    assert operator.products == 4
    assert operator.dimension == 3


def test_flat_columns_and_the_matrix_itself():
    operator = DenseOperator(MATRIX)
    columns = torch.randn(3, 5, generator=torch.Generator().manual_seed(0)).double()
    assert_close(operator.multiply_flat(columns), MATRIX @ columns)
    assert torch.equal(operator.to_dense(), MATRIX)
    with pytest.raises(OptionError, match="3 rows was asked for, above the limit of 2"):
        operator.to_dense(limit=2)
    with pytest.raises(VectorError, match="4 entries"):
        operator.multiply_flat(torch.zeros(4, 1).double())
    with pytest.raises(VectorError, match=r"float32 on cpu.*operator is torch.float64"):
        operator.multiply_flat(torch.zeros(3, 1))


def test_vectors_leave_their_history_behind():
    image = DenseOperator(MATRIX) @ {"x": MATRIX[0].clone().requires_grad_()}
    assert not image["x"].requires_grad


def test_counts_are_those_of_one_operator():
    first, second = DenseOperator(MATRIX), DenseOperator(MATRIX)
    first @ {"x": MATRIX[0]}
    assert (first.products, second.products) == (1, 0)


def test_as_many_vectors_go_at_a_time_as_have_room(monkeypatch):
    A = DenseOperator(torch.eye(3))
    monkeypatch.setattr(operator, "memory_budget", lambda *_: 0)
    # So little goes without a look at what is free, unless somebody says how much.
    assert A.at_a_time(5) == 5
    A.memory = 10**9
    assert A.at_a_time(5) == 1
    A.memory = None
    monkeypatch.setattr(operator, "LITTLE", 0)
    for room, most in ((10**9, 5), (3 * operator.HELD * 12, 3), (0, 1)):
        monkeypatch.setattr(operator, "memory_budget", lambda *_, room=room: room)
        assert A.at_a_time(5) == most
