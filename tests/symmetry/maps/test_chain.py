from __future__ import annotations

import pytest
from support.small_nets import convnet
from torch import nn
from torch.nn.utils import parametrizations

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.chain import Chain, Layer


class OwnForward(nn.Sequential):
    def forward(self, input):
        return super().forward(input) + 1


def test_names_in_order_through_nesting():
    net = nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU()),
        nn.Flatten(),
        nn.Linear(8, 1, bias=False),
    )
    assert Chain.of(net).layers == (
        Layer("0.0.weight", "0.0.bias"),
        Layer("2.weight", None),
    )


def test_a_single_layer_is_a_chain():
    assert Chain.of(nn.Linear(2, 3)).layers == (Layer("weight", "bias"),)


def test_groups_are_kept():
    assert Chain.of(convnet(0, groups=2)).layers[1].groups == 2


def test_a_reused_activation_object_keeps_its_places():
    relu = nn.ReLU()
    net = nn.Sequential(nn.Linear(2, 3), relu, nn.Linear(3, 3), relu, nn.Linear(3, 1))
    assert len(Chain.of(net)) == 3


_SHARED = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("net", "reason"),
    [
        (nn.Sequential(nn.Linear(2, 2), nn.Tanh(), nn.Linear(2, 1)), "Tanh"),
        (nn.Sequential(nn.Linear(2, 2), nn.ReLU6(), nn.Linear(2, 1)), "ReLU6"),
        (nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)), "BatchNorm1d"),
        (nn.Sequential(nn.Linear(4, 4), nn.MaxPool1d(2), nn.Linear(2, 1)), "MaxPool1d"),
        (nn.Sequential(nn.Linear(4, 3), nn.Flatten(), nn.Linear(6, 1)), "one by one"),
        (nn.Sequential(nn.Conv1d(1, 2, 1), nn.Linear(4, 1)), "one by one"),
        (nn.Sequential(nn.Conv1d(1, 2, 1), nn.Flatten(2), nn.Linear(4, 1)), "Flatten"),
        (nn.Sequential(_SHARED, nn.ReLU(), _SHARED), "share a parameter"),
        (nn.Sequential(nn.Linear(2, 1), nn.ReLU()), "follows the last layer"),
        (nn.Sequential(nn.ReLU()), "no linear"),
        (nn.TransformerEncoderLayer(4, 2), "TransformerEncoderLayer"),
        (OwnForward(nn.Linear(2, 1)), "forward of its own"),
        (nn.Sequential(parametrizations.weight_norm(nn.Linear(2, 1))), "Parametrized"),
    ],
)
def test_what_is_no_chain_is_refused(net, reason):
    with pytest.raises(SymmetryError, match=reason):
        Chain.of(net)


def test_a_weight_that_is_no_parameter_is_refused():
    layer = nn.Linear(2, 1, bias=False)
    weight = layer.weight.detach()
    del layer.weight
    layer.weight = weight
    layer.weight_v = nn.Parameter(weight.clone())
    with pytest.raises(SymmetryError, match="weight_v"):
        Chain.of(nn.Sequential(layer))
