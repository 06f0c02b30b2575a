from __future__ import annotations

import pytest
import torch
from support.small_nets import normal, params_of, randomized
from torch import nn

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.batchnorm import (
    NormalizedLayer,
    rescale_gain,
    rescale_normalized_rows,
)
from flatgauge.symmetry.maps.chain import Layer
from papers.points import with_parameters


def normalized_net(eps: float = 1e-5) -> nn.Sequential:
    net = nn.Sequential(
        nn.Conv2d(2, 3, 3),
        nn.BatchNorm2d(3, eps=eps),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(12, 2),
    )
    return randomized(net, 0)


X = normal(8, 2, 6, 6, seed=1)
SCALES = normal(3, seed=2).exp()


@pytest.mark.parametrize("training", [True, False])
def test_gain_and_shift_against_the_next_layer(training):
    net = normalized_net().train(training)
    moved = rescale_gain(params_of(net), NormalizedLayer.of(net, "1"), SCALES)
    assert not torch.allclose(moved["1.bias"], net[1].bias)
    torch.testing.assert_close(
        with_parameters(net, moved)(X), net(X), rtol=1e-12, atol=1e-12
    )


def test_rows_in_front_of_a_batch_norm_in_training_mode():
    net = normalized_net(eps=1e-300)  # torch refuses 0 in training mode
    moved = rescale_normalized_rows(
        params_of(net), NormalizedLayer.of(net, "1"), SCALES
    )
    torch.testing.assert_close(
        with_parameters(net, moved)(X), net(X), rtol=1e-12, atol=1e-12
    )


def test_rows_hold_up_to_eps():
    net = normalized_net(eps=1e-5)
    moved = rescale_normalized_rows(
        params_of(net), NormalizedLayer.of(net, "1"), SCALES
    )
    drift = (with_parameters(net, moved)(X) - net(X)).abs().max().item()
    assert 1e-12 < drift < 1e-4


def test_rows_are_refused_in_evaluation_mode():
    net = normalized_net().eval()
    block = NormalizedLayer.of(net, "1")
    with pytest.raises(SymmetryError, match="stored statistics"):
        rescale_normalized_rows(params_of(net), block, SCALES)
    twin = normalized_net().eval()
    twin[1] = nn.BatchNorm2d(3, track_running_stats=False).double().eval()
    assert NormalizedLayer.of(twin, "1").batch_statistics


def test_address():
    block = NormalizedLayer.of(normalized_net(), "1")
    assert block.layer == Layer("0.weight", "0.bias")
    assert block.following == Layer("5.weight", "5.bias")


def test_what_is_no_normalized_layer_is_refused():
    net = normalized_net()
    for name in ("0", "nowhere"):
        with pytest.raises(SymmetryError, match="not a batch norm"):
            NormalizedLayer.of(net, name)
    plain = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, affine=False))
    with pytest.raises(SymmetryError, match="not a batch norm"):
        NormalizedLayer.of(plain, "1")
    late = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.BatchNorm1d(2))
    with pytest.raises(SymmetryError, match="'1' stands in front"):
        NormalizedLayer.of(late, "2")
    curved = nn.Sequential(
        nn.Linear(2, 2), nn.BatchNorm1d(2), nn.GELU(), nn.Linear(2, 1)
    )
    with pytest.raises(SymmetryError, match="GELU"):
        NormalizedLayer.of(curved, "1")
    last = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    with pytest.raises(SymmetryError, match="no layer follows"):
        rescale_gain(params_of(last), NormalizedLayer.of(last, "1"), torch.ones(2))


def test_scales_that_do_not_fit_are_refused():
    net = normalized_net()
    block = NormalizedLayer.of(net, "1")
    with pytest.raises(SymmetryError, match="3 channels"):
        rescale_gain(params_of(net), block, torch.ones(2))
    with pytest.raises(SymmetryError, match="positive"):
        rescale_normalized_rows(params_of(net), block, -torch.ones(3))
