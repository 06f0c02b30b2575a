from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_nets import assert_close, convnet, mlp, normal, params_of

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.chain import Chain, Layer, with_parameters
from flatgauge.symmetry.maps.output import (
    center_output,
    scale_output,
    shift_output,
    shift_output_by_input,
)
from flatgauge.symmetry.maps.rescale import rescale_nodes

NET = mlp([2, 3, 4], seed=0)
POINT = params_of(NET)
LAST = Chain.of(NET).layers[-1]
X = normal(9, 2, seed=1)


def softmax(params):
    return with_parameters(NET, params)(X).log_softmax(-1)


@settings(deadline=None, max_examples=10)
@given(st.floats(-5, 5), st.integers(0, 100))
def test_shifts_keep_the_softmax_and_centring_undoes_them(shift, seed):
    direction = normal(3, seed=seed)
    moved = shift_output(POINT, LAST, shift)
    moved = shift_output_by_input(moved, LAST, direction)
    torch.testing.assert_close(softmax(moved), softmax(POINT), rtol=1e-12, atol=1e-12)
    assert_close(center_output(moved, LAST), center_output(POINT, LAST))


def test_shift_moves_every_output_alike():
    difference = with_parameters(NET, shift_output(POINT, LAST, 3.0))(X) - NET(X)
    torch.testing.assert_close(difference, torch.full_like(difference, 3.0))


def test_centring_keeps_the_softmax_and_repeats_to_itself():
    centred = center_output(POINT, LAST)
    torch.testing.assert_close(softmax(centred), softmax(POINT), rtol=1e-12, atol=1e-12)
    assert_close(center_output(centred, LAST), centred)
    assert float(centred[LAST.weight].mean(0).abs().max()) < 1e-14
    assert float(centred["2.bias"].mean().abs()) < 1e-14
    assert centred["0.weight"] is POINT["0.weight"]


def test_centring_commutes_with_node_scalings():
    chain, scales = Chain.of(NET), [normal(3, seed=2).exp()]
    assert_close(
        center_output(rescale_nodes(POINT, chain, scales), LAST),
        rescale_nodes(center_output(POINT, LAST), chain, scales),
    )


def test_scale_multiplies_the_outputs():
    moved = with_parameters(NET, scale_output(POINT, LAST, 2.5))
    torch.testing.assert_close(moved(X), 2.5 * NET(X), rtol=1e-13, atol=1e-13)


def test_without_bias():
    net = mlp([2, 3, 4], seed=3, bias=False)
    layer, point = Chain.of(net).layers[-1], params_of(net)
    with pytest.raises(SymmetryError, match="no bias"):
        shift_output(point, layer, 1.0)
    assert_close(scale_output(point, layer, 1.0), point)
    assert float(center_output(point, layer)["2.weight"].sum(0).abs().max()) < 1e-14


def test_what_does_not_exist_is_refused():
    for factor in (0.0, -1.0, float("inf")):
        with pytest.raises(SymmetryError, match="positive"):
            scale_output(POINT, LAST, factor)
    with pytest.raises(SymmetryError, match="shape"):
        shift_output_by_input(POINT, LAST, torch.ones(2))
    grouped = Chain.of(convnet(0, groups=2)).layers[1]
    point = params_of(convnet(0, groups=2))
    with pytest.raises(SymmetryError, match="groups"):
        center_output(point, grouped)
    with pytest.raises(SymmetryError, match="groups"):
        shift_output_by_input(point, grouped, torch.ones(2, 3, 3))
    assert isinstance(grouped, Layer)
