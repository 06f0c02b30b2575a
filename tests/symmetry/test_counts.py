"""The dimension of the group of known architectures, against counts made by hand."""

from __future__ import annotations

import copy

import pytest
import torch
from support import models
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from flatgauge.symmetry import Group, symmetries
from flatgauge.symmetry.verify import perturbed, relative_change


def check(
    model: nn.Module, inputs: Tensor, exact: int, approximate: int, **options: str
) -> Group:
    """Counts, and outputs preserved to 1e-13 under an element not used before."""
    group = symmetries(model, inputs, strict=True, **options)
    assert (group.dimension, group.approximate_dimension) == (exact, approximate)
    generic = perturbed(copy.deepcopy(model).double().eval(), seed=3)
    twin = group.act(generic, group.random_element(seed=5, spread=0.5))
    with torch.no_grad():
        before, after = generic(inputs.double()), twin(inputs.double())
    assert relative_change([before], [after]) < 1e-13
    return group


def images(size: int, channels: int = 3) -> Tensor:
    random = torch.Generator().manual_seed(0)
    return torch.randn(2, channels, size, size, generator=random)


@pytest.mark.parametrize("bias", [True, False])
def test_mlp(bias):
    """One scale for each hidden unit: 32 + 24; one for each hidden layer: 2."""
    group = check(models.mlp(10, 32, 24, 5, bias=bias), torch.randn(3, 10), 56, 56)
    assert group.layer_dimension == 2
    assert set(group.generators.labels) == {"neuron"}


def test_lenet():
    """Channels 6 + 16 (a pooled channel feeds 25 columns), units 120 + 84."""
    group = check(models.lenet(), images(28, 1), 226, 226)
    assert group.layer_dimension == 4
    assert group.kinds == ("layer-rescale", "node-rescale")


def test_unet():
    """Channels 8 + 16 + 8 + 8: the concatenation joins, and ties nothing."""
    check(models.UNet(), images(16), 40, 40)


def test_weight_norm():
    """A row of v can be scaled freely, 8 + 3; so can all hidden units at a time, 1.

    A single hidden unit cannot: column scales of the second v would change its norm.
    """
    network = nn.Sequential(
        weight_norm(nn.Linear(6, 8)), nn.ReLU(), weight_norm(nn.Linear(8, 3))
    )
    check(network, torch.randn(3, 6), 12, 12)


WRN = {"joint": (1808, 3168), "eps-corrected": (3168, 3168),
       "eval-only": (3168, 3168), "parameters": (1808, 1808)}  # fmt: skip


@pytest.mark.parametrize("batchnorm", WRN)
def test_wide_resnet(batchnorm):
    """WRN-16-4: outputs of batch norms are free, their inputs up to eps.

    Exact, behind batch norms: inside the blocks 2 (64 + 128 + 256) = 896, at their
    start 16 + 64 + 64 + 128 + 128 + 256 = 656, and the last 256: 1808. Up to eps also
    the inputs of the inner ones, 896, and the residual streams 16 + 64 + 128 + 256:
    3168. With v + eps for v, or with a gain that makes up for v, these are exact in
    evaluation mode; with fixed buffers they are gone.
    """
    exact, approximate = WRN[batchnorm]
    group = check(
        models.wide_resnet(), images(16), exact, approximate, batchnorm=batchnorm
    )
    if batchnorm == "joint":
        assert 1e-8 < group.approximate_error < 1e-3


def test_resnet18():
    """Exact: behind batch norms. Inside the blocks 2 (64 + 128 + 256 + 512) = 1920.

    The streams 64 + 128 + 256 + 512 = 960 pass no batch norm, so they scale with the
    gains of all that write to them: 2880. Up to eps also every convolution in front of
    a batch norm: 64 + 4 (64 + 128 + 256 + 512) + shortcuts (128 + 256 + 512) = 4800.
    """
    check(models.resnet18(), images(32), 2880, 7680)


@pytest.mark.slow
def test_mobilenet():
    """Width 0.25: only the linear bottlenecks are free, since ReLU6 fixes the rest.

    Stages of width 8, 8, 8, 16, 24, 40, 80, each with one scale a channel for all its
    blocks, which are summed. The first is summed with the stem, behind a ReLU6:
    8 + 8 + 16 + 24 + 40 + 80 = 176. Up to eps the inputs of all batch norms join.
    """
    check(models.mobilenet_v2(), images(32), 176, 5504)


def test_vision_transformer():
    """L (2 D of the two gains + D query-key + D value-output) + D of the last gain.

    2 · 4 · 32 + 32 = 288; up to eps the residual stream scales as a whole: 289.
    """
    group = check(models.small_vit(), images(32), 288, 289)
    assert group.generators[-1].label == "residual stream"
    assert not group.generators[-1].exact


def test_multihead_attention_has_a_scale_for_each_coordinate_of_each_head():
    """16 query-key and 16 value-output coordinates."""
    attention = nn.MultiheadAttention(16, 4, batch_first=True)

    class Attend(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x)[0]

    group = check(Attend(), torch.randn(2, 5, 16), 32, 32)
    assert set(group.generators.labels) == {"attention"}


@pytest.mark.slow
def test_alexnet():
    """64 + 192 + 384 + 256 + 256 channels and 4096 + 4096 units."""
    check(models.alexnet(), images(224), 9344, 9344)


@pytest.mark.slow
def test_vgg16():
    """2·64 + 2·128 + 3·256 + 6·512 channels and 2·4096 units."""
    check(models.vgg16(), images(32), 12416, 12416)


@pytest.mark.slow
def test_resnet50():
    """Behind batch norms, inside the blocks and on the streams.

    Inner: 2 (3·64 + 4·128 + 6·256 + 3·512) = 7552; streams: 64 (the stem) + 256 + 512 +
    1024 + 2048 = 3904; 11456. Up to eps also all convolutions in front of batch norms:
    7552 + 64 + block outputs 3·256 + 4·512 + 6·1024 + 3·2048 + shortcuts 3840 = 26560;
    38016.
    """
    check(models.resnet50(), images(64), 11456, 38016)


@pytest.mark.slow
def test_vit_b16():
    """12 · 4 · 768 + 768 = 37632, and the residual stream up to eps."""
    check(models.vit_b16(), images(224), 37632, 37633)
