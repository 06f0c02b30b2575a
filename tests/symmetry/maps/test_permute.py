from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_nets import assert_close, convnet, mlp, normal, params_of

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.permute import permute_units
from papers.points import with_parameters


@settings(deadline=None, max_examples=15)
@given(st.permutations(range(4)), st.permutations(range(4)))
def test_linear_units(first, second):
    net = mlp([2, 4, 4, 2], seed=0)
    chain, point = Chain.of(net), params_of(net)
    a, b = torch.tensor(first), torch.tensor(second)
    moved = permute_units(permute_units(point, chain, 0, a), chain, 1, b)
    x = normal(6, 2, seed=1)
    torch.testing.assert_close(
        with_parameters(net, moved)(x), net(x), rtol=1e-13, atol=1e-13
    )
    composed = permute_units(permute_units(point, chain, 0, a), chain, 0, b)
    assert_close(composed, permute_units(point, chain, 0, a[b]), 0)
    back = permute_units(permute_units(point, chain, 0, a), chain, 0, a.argsort())
    assert_close(back, point, 0)


def test_channels_and_the_flattened_columns_behind_them():
    net = convnet(2)
    chain = Chain.of(net)
    moved = permute_units(params_of(net), chain, 0, torch.tensor([2, 0, 3, 1]))
    moved = permute_units(moved, chain, 1, torch.tensor([5, 3, 1, 0, 2, 4]))
    x = normal(3, 2, 6, 6, seed=3)
    torch.testing.assert_close(
        with_parameters(net, moved)(x), net(x), rtol=1e-13, atol=1e-13
    )


def test_what_is_no_permutation_is_refused():
    net = mlp([2, 3, 1], seed=4)
    chain, point = Chain.of(net), params_of(net)
    for order in ([0, 1], [0, 1, 1], [1, 2, 3]):
        with pytest.raises(SymmetryError, match="not a permutation"):
            permute_units(point, chain, 0, torch.tensor(order))
    with pytest.raises(SymmetryError, match="no hidden layer 1"):
        permute_units(point, chain, 1, torch.tensor([0]))
    grouped = convnet(5, groups=2)
    with pytest.raises(SymmetryError, match="grouped"):
        permute_units(params_of(grouped), Chain.of(grouped), 0, torch.arange(4))
