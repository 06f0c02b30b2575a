"""Tensors inside containers."""

from __future__ import annotations

from collections import UserDict, namedtuple

import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from flatgauge.nested import (
    concatenated,
    leaves,
    made_of_tensors,
    map_leaves,
    map_nested,
    row_layout,
    tensors_in,
)

X, Y = torch.arange(14.0).reshape(7, 2), torch.arange(7)
Pair = namedtuple("Pair", "inputs targets")


class Odd(list):
    """Cannot be built from its parts."""

    def __init__(self, one, other):
        super().__init__([one, other])


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ((X, Y), True),
        ({"x": [X, None], "labels": Y}, True),
        ((X, 3), False),
        ({"x": X, "lengths": [1, 2]}, False),
        ((pack_sequence([X]), Y), False),
    ],
)
def test_batches_that_are_made_of_tensors(value, expected):
    assert made_of_tensors(value) == expected


def test_nested_values_keep_their_kinds():
    packed = pack_sequence([X[:3, 0], X[:2, 0]])
    nested = [Pair(X, (Y, [packed, None])), torch.Size([1, 2]), {"a": {"b": X}}]
    moved = map_nested(lambda t: t + 1, nested)
    assert isinstance(moved[0], Pair)
    assert torch.equal(moved[0].inputs, X + 1)
    assert isinstance(moved[0].targets, tuple)
    assert torch.equal(moved[0].targets[1][0].data, packed.data + 1)
    assert moved[1] == torch.Size([1, 2])
    assert torch.equal(moved[2]["a"]["b"], X + 1)
    assert len(tensors_in(nested)) == 4


def test_leaves_come_in_order():
    value = {"a": (1, [None, "b"]), "c": UserDict(d=X), "e": {}, "f": ()}
    assert list(leaves(value)) == [1, None, "b", X]


def test_containers_are_built_anew_only_where_they_must_be():
    assert tensors_in(Odd(X, (Y,))) == [X, Y]
    assert made_of_tensors(Odd(X, (Y,)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((1, 2), (1, 2, 3)),
        ({"a": 1}, {"b": 1}),
        ((1, 2), 3),
        (3, (1, 2)),
        ((), 3),
        (3, {}),
        ([(1,), 2], [1, (2,)]),
    ],
)
def test_structures_that_differ_are_refused(one, other):
    with pytest.raises(ValueError, match="structures"):
        map_leaves(max, one, other)


def test_tensors_are_concatenated_by_key():
    first = {"x": [X, None], "y": Pair(Y, X)}
    second = {"y": Pair(Y[:2], X[:1]), "x": [X[:3], None]}
    found = concatenated([first, second, first])
    assert list(found) == ["x", "y"]
    assert torch.equal(found["x"][0], torch.cat([X, X[:3], X]))
    assert found["x"][1] is None
    assert isinstance(found["y"], Pair)
    assert torch.equal(found["y"].inputs, torch.cat([Y, Y[:2], Y]))


@pytest.mark.parametrize("value", [(X, 3), (X, "name"), pack_sequence([X])])
def test_other_things_are_not_concatenated(value):
    with pytest.raises(TypeError):
        concatenated([value, value])


def test_what_can_be_concatenated_has_one_layout():
    layout = row_layout({"x": X, "y": (Y, None)})
    assert row_layout({"y": (Y[:2], None), "x": X[:3]}) == layout
    for other in (
        {"x": X[:, :1], "y": (Y, None)},
        {"x": X.double(), "y": (Y, None)},
        {"x": X, "y": (Y, Y)},
        {"x": X, "y": Y},
        {"x": X},
    ):
        assert row_layout(other) != layout
