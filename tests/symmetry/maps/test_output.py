from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_nets import assert_close, convnet, mlp, normal, params_of

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.chain import Chain, Layer
from flatgauge.symmetry.maps.output import (
    axes_of,
    center_output,
    scale_output,
    shift_output,
)
from flatgauge.symmetry.maps.rescale import rescale_nodes
from papers.points import with_parameters

NET = mlp([2, 3, 4], seed=0)
POINT = params_of(NET)
LAST = Chain.of(NET).layers[-1]
AXES = axes_of(LAST)
X = normal(9, 2, seed=1)


def constant(value: float) -> torch.Tensor:
    return torch.tensor([value], dtype=torch.float64)


def softmax(params):
    return with_parameters(NET, params)(X).log_softmax(-1)


@settings(deadline=None, max_examples=10)
@given(st.floats(-5, 5), st.integers(0, 100))
def test_shifts_keep_the_softmax_and_centring_undoes_them(shift, seed):
    steps = {LAST.bias: constant(shift), LAST.weight: normal(1, 3, seed=seed)}
    moved = shift_output(POINT, AXES, steps)
    torch.testing.assert_close(softmax(moved), softmax(POINT), rtol=1e-12, atol=1e-12)
    assert_close(center_output(moved, AXES), center_output(POINT, AXES))


def test_shift_moves_every_output_alike():
    moved = shift_output(POINT, AXES, {LAST.bias: constant(3.0)})
    difference = with_parameters(NET, moved)(X) - NET(X)
    torch.testing.assert_close(difference, torch.full_like(difference, 3.0))


def test_centring_keeps_the_softmax_and_repeats_to_itself():
    centred = center_output(POINT, AXES)
    torch.testing.assert_close(softmax(centred), softmax(POINT), rtol=1e-12, atol=1e-12)
    assert_close(center_output(centred, AXES), centred)
    assert float(centred[LAST.weight].mean(0).abs().max()) < 1e-14
    assert float(centred["2.bias"].mean().abs()) < 1e-14
    assert centred["0.weight"] is POINT["0.weight"]


def test_centring_commutes_with_node_scalings():
    chain, scales = Chain.of(NET), [normal(3, seed=2).exp()]
    assert_close(
        center_output(rescale_nodes(POINT, chain, scales), AXES),
        rescale_nodes(center_output(POINT, AXES), chain, scales),
    )


def test_scale_multiplies_the_outputs():
    moved = with_parameters(NET, scale_output(POINT, AXES, 2.5))
    torch.testing.assert_close(moved(X), 2.5 * NET(X), rtol=1e-13, atol=1e-13)


def test_without_bias():
    net = mlp([2, 3, 4], seed=3, bias=False)
    axes, point = axes_of(Chain.of(net).layers[-1]), params_of(net)
    with pytest.raises(SymmetryError, match="not of the layer"):
        shift_output(point, axes, {"2.bias": constant(1.0)})
    assert_close(scale_output(point, axes, 1.0), point)
    assert float(center_output(point, axes)["2.weight"].sum(0).abs().max()) < 1e-14


def test_what_does_not_exist_is_refused():
    for factor in (0.0, -1.0, float("inf")):
        with pytest.raises(SymmetryError, match="positive"):
            scale_output(POINT, AXES, factor)
    with pytest.raises(SymmetryError, match="shape"):
        shift_output(POINT, AXES, {LAST.weight: torch.ones(1, 2)})
    grouped = Chain.of(convnet(0, groups=2)).layers[1]
    assert isinstance(grouped, Layer)
    with pytest.raises(SymmetryError, match="groups"):
        axes_of(grouped)
