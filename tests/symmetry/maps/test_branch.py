from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_nets import convnet, mlp, normal
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.branch import (
    Branches,
    split_branches,
    split_layer,
    splittable,
)
from flatgauge.twins import families

shares = st.floats(0, 1, exclude_min=True)


@settings(deadline=None, max_examples=15)
@given(shares, st.integers(0, 2))
def test_every_share_keeps_the_function(share, layer):
    for net, x in (
        (mlp([2, 4, 3, 2], seed=0), normal(6, 2, seed=1)),
        (convnet(2), normal(3, 2, 6, 6, seed=3)),
    ):
        twin = split_branches(net, layer, share)
        torch.testing.assert_close(twin(x), net(x), rtol=1e-12, atol=1e-12)


def test_branches_are_tensors_of_their_own_and_other_names_stay():
    net = mlp([2, 3, 1], seed=4)
    twin = split_branches(net, 0, 0.25)
    assert set(dict(twin.named_parameters())) == {
        "0.first.weight",
        "0.first.bias",
        "0.second.weight",
        "0.second.bias",
        "2.weight",
        "2.bias",
    }
    assert torch.equal(twin[0].first.weight, net[0].weight * 0.25)
    assert torch.equal(twin[0].second.weight, net[0].weight * 0.75)
    assert isinstance(net[0], nn.Linear)
    assert isinstance(net[1], nn.ReLU)


def test_the_whole_share_leaves_a_zero_branch():
    twin = split_branches(mlp([2, 3, 1], seed=5), 0, 1.0)
    assert not twin[0].second.weight.any()


def test_an_activation_that_works_in_place_and_a_nested_layer():
    net = nn.Sequential(
        nn.Sequential(nn.Linear(2, 3), nn.ReLU(inplace=True)), nn.Linear(3, 1)
    ).double()
    twin = split_branches(net, 0, 0.5)
    x = normal(4, 2, seed=6)
    torch.testing.assert_close(twin(x), net(x), rtol=1e-13, atol=1e-13)


def test_a_lone_layer():
    layer = nn.Linear(2, 3).double()
    twin = split_branches(layer, 0, 0.5)
    assert isinstance(twin, Branches)
    x = normal(4, 2, seed=7)
    torch.testing.assert_close(twin(x), layer(x))


def test_what_does_not_exist_is_refused():
    net = mlp([2, 3, 1], seed=8)
    for share in (0.0, -0.5, 1.5):
        with pytest.raises(SymmetryError, match="share"):
            split_branches(net, 0, share)
    with pytest.raises(SymmetryError, match="no layer 2"):
        split_branches(net, 2, 0.5)
    mixed = nn.Sequential(nn.Linear(2, 3), nn.Softmax(dim=1), nn.Linear(3, 1))
    with pytest.raises(SymmetryError, match="Softmax"):
        split_branches(mixed, 0, 0.5)


class Gated(nn.Module):
    """No chain: two layers of one input, of which one asks for its weight's type."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.up, self.down = (nn.Linear(3, 3) for _ in range(3))
        self.tied = nn.Linear(3, 3, bias=False)
        self.tied.weight = self.up.weight

    def forward(self, x: Tensor) -> Tensor:
        h = torch.sigmoid(self.gate(x)) * self.up(x)
        return self.tied(self.down(h.to(self.down.weight.dtype)))


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_layer_of_any_network_is_split(share):
    torch.manual_seed(9)
    model, x = Gated().double(), normal(6, 3, seed=10)
    assert sorted(splittable(model)) == ["down", "gate"]
    twin = split_layer(model, "gate", share)
    assert {"gate.first.weight", "gate.second.bias"} <= set(twin.state_dict())
    torch.testing.assert_close(twin(x), model(x), rtol=1e-12, atol=1e-12)
    for path in ("up", "nothing"):
        with pytest.raises(SymmetryError, match="splittable"):
            split_layer(model, path, share)


def test_twins_of_any_network_are_split_where_nobody_looks_into_the_layer():
    torch.manual_seed(11)
    objective = fg.Objective(
        Gated().double(), (normal(6, 3, seed=12), torch.arange(6) % 3)
    )
    (family,) = (one for one in families(objective) if one.kind == "branch-split")
    twin = family.twin(seed=2)
    assert twin.holds
    assert "gate.first.weight" in twin.objective.parameters
    for name, claimed in (("normalized-sharpness", True), ("hessian-trace", False)):
        one, other = (
            fg.measure(o, f"{name}")[name].value for o in (objective, twin.objective)
        )
        assert one is not None
        assert other is not None
        assert (abs(other / one - 1) < 1e-9) == claimed
