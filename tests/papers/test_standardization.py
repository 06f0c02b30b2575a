from __future__ import annotations

import pytest
import torch
from support.small_nets import mlp, normal, randomized
from torch import nn

from flatgauge.errors import SymmetryError
from papers.dinh2017.standardization import absorb_standardization

MEAN = torch.tensor([1.0, -3.0], dtype=torch.float64)
DEVIATION = torch.tensor([0.5, 20.0], dtype=torch.float64)


@pytest.mark.parametrize("bias", [True, False])
def test_the_same_function_of_the_raw_input(bias):
    net = mlp([2, 3, 2], seed=0, bias=bias)
    raw = absorb_standardization(net, MEAN, DEVIATION)
    x = normal(7, 2, seed=1) * DEVIATION + MEAN
    torch.testing.assert_close(
        raw(x), net((x - MEAN) / DEVIATION), rtol=1e-12, atol=1e-12
    )
    assert (net[0].bias is not None) == bias


def test_the_way_back():
    net = mlp([2, 3, 2], seed=2)
    raw = absorb_standardization(net, MEAN, DEVIATION)
    back = absorb_standardization(raw, -MEAN / DEVIATION, 1 / DEVIATION)
    for name, tensor in back.named_parameters():
        torch.testing.assert_close(tensor, dict(net.named_parameters())[name])


@pytest.mark.parametrize("mode", ["zeros", "reflect"])
def test_convolutions_channel_by_channel(mode):
    convolution = nn.Conv2d(2, 3, 3, padding=int(mode == "reflect"), padding_mode=mode)
    net = randomized(nn.Sequential(convolution, nn.ReLU(), nn.Conv2d(3, 1, 2)), 3)
    raw = absorb_standardization(net, MEAN, DEVIATION)
    x = normal(2, 2, 5, 5, seed=4)
    standardized = (x - MEAN.view(2, 1, 1)) / DEVIATION.view(2, 1, 1)
    torch.testing.assert_close(raw(x), net(standardized), rtol=1e-12, atol=1e-12)


def test_a_flattened_input():
    net = randomized(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)), 5)
    mean, deviation = normal(4, seed=6), normal(4, seed=7).exp()
    x = normal(3, 2, 2, seed=8)
    standardized = (x - mean.view(2, 2)) / deviation.view(2, 2)
    torch.testing.assert_close(
        absorb_standardization(net, mean, deviation)(x), net(standardized)
    )


def test_what_cannot_be_absorbed_is_refused():
    zeros = nn.Sequential(nn.Conv2d(2, 3, 3, padding=1))
    with pytest.raises(SymmetryError, match="pads with zeros"):
        absorb_standardization(zeros, MEAN, DEVIATION)
    same = nn.Sequential(nn.Conv2d(2, 3, 3, padding="same"))
    with pytest.raises(SymmetryError, match="pads with zeros"):
        absorb_standardization(same, MEAN, DEVIATION)
    grouped = nn.Sequential(nn.Conv2d(2, 4, 3, groups=2))
    with pytest.raises(SymmetryError, match="grouped"):
        absorb_standardization(grouped, MEAN, DEVIATION)
    rectified = nn.Sequential(nn.ReLU(), nn.Linear(2, 1))
    with pytest.raises(SymmetryError, match="before the first layer"):
        absorb_standardization(rectified, MEAN, DEVIATION)
    with pytest.raises(SymmetryError, match="3 features"):
        absorb_standardization(nn.Sequential(nn.Linear(3, 1)), MEAN, DEVIATION)
    with pytest.raises(SymmetryError, match="constant features"):
        absorb_standardization(nn.Sequential(nn.Linear(2, 1)), MEAN, 0 * DEVIATION)
