from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.cases import CASES, assert_close, random_vector
from torch import nn
from torch.autograd import forward_ad

import flatgauge as fg
from flatgauge.curvature.dense import dense_hessian
from flatgauge.kernels.convolution import OwnConvolutions
from flatgauge.vectors import generator, ravel

FUNCTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
OPTIONS = [
    {},
    {"stride": 2, "padding": 1},
    {"dilation": 2},
    {"groups": 2},
    {"stride": 2, "padding": 1, "dilation": 2, "groups": 2},
    {"padding": "same"},
]


def draw(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def derivatives(dimension: int, options: dict, bias: bool, first: bool) -> list:
    """A value, its gradient, and the gradient of a combination of that."""
    x = draw(3, 4, *[7] * dimension, seed=0).requires_grad_(not first)
    w = draw(6, 4 // options.get("groups", 1), *[3] * dimension, seed=1)
    w.requires_grad_()
    b = draw(6, seed=2).requires_grad_() if bias else None
    point = [t for t in (x, w, b) if t is not None and t.requires_grad]
    output = FUNCTIONS[dimension](x, w, b, **options)
    value = output.pow(3).sum()
    slopes = torch.autograd.grad(value, point, create_graph=True)
    mixed = sum((s * draw(*s.shape, seed=3)).sum() for s in slopes)
    return [output, *slopes, *torch.autograd.grad(mixed, point)]


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "plain"])
@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("dimension", FUNCTIONS)
def test_derivatives_are_those_of_torch(dimension, options, bias, first):
    expected = derivatives(dimension, options, bias, first)
    with OwnConvolutions():
        found = derivatives(dimension, options, bias, first)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert_close(one.detach(), other.detach(), 1e-13)


def test_a_single_image_and_whole_numbers_go_by_torch():
    x, w = draw(4, 7, 7, seed=0), draw(6, 4, 3, 3, seed=1)
    numbers = torch.arange(32).reshape(1, 2, 4, 4), torch.ones(1, 2, 2, 2).long()
    with OwnConvolutions():
        assert_close(F.conv2d(x, w), F.conv2d(x[None], w)[0], 1e-13)
        assert F.conv2d(*numbers).dtype == torch.int64


class Ensemble(nn.Module):
    """Kernels of several networks, applied by vmap."""

    def __init__(self):
        super().__init__()
        self.kernels = nn.Parameter(draw(2, 3, 1, 3, 3, seed=4))

    def forward(self, x):
        each = torch.vmap(lambda kernel: F.conv2d(x, kernel).tanh().sum((2, 3)))
        return each(self.kernels).mean(0)


class Tangent(nn.Conv2d):
    """Outputs are derivatives in the direction of the input."""

    def forward(self, x):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(x, x.cos())
            return forward_ad.unpack_dual(super().forward(dual).tanh()).tangent.sum(
                (2, 3)
            )


@pytest.mark.parametrize("build", [Ensemble, lambda: Tangent(1, 3, 3).double()])
def test_models_that_transform_themselves_go_by_torch(build):
    data = draw(4, 1, 5, 5, seed=5), torch.arange(4) % 3
    objective = fg.Objective(build(), data)
    vector = random_vector(objective)
    product = ravel(fg.Hessian(objective, "double-backward") @ vector)
    assert_close(product, dense_hessian(objective) @ ravel(vector))


def test_a_frozen_kernel_has_no_gradient():
    x = draw(2, 4, 5, 5, seed=0).requires_grad_()
    w = draw(3, 4, 3, 3, seed=1)
    with OwnConvolutions():
        value = F.conv2d(x, w).pow(3).sum()
    (slope,) = torch.autograd.grad(value, [x], create_graph=True)
    (again,) = torch.autograd.grad(slope.pow(2).sum(), [x])
    value = F.conv2d(x, w).pow(3).sum()
    (plain,) = torch.autograd.grad(value, [x], create_graph=True)
    assert_close(again, torch.autograd.grad(plain.pow(2).sum(), [x])[0], 1e-13)


@pytest.mark.parametrize("case", ["lenet", "resnet", "resnet-train"])
def test_the_hessian_is_that_of_torch(case):
    objective = CASES[case].objective()
    vector = random_vector(objective)
    product = ravel(fg.Hessian(objective, "double-backward") @ vector)
    assert_close(product, dense_hessian(objective) @ ravel(vector))
