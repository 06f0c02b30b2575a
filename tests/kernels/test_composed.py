"""Composed operations are torch's own, with the derivatives of these."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from flatgauge.kernels.composed import Composed


def images(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


CASES = {
    "layer norm": (nn.LayerNorm((3, 4)), images(5, 3, 4)),
    "layer norm without weights": (
        nn.LayerNorm(4, elementwise_affine=False),
        images(5, 3, 4),
    ),
    "group norm": (nn.GroupNorm(2, 6), images(3, 6, 4, 5)),
    "batch norm": (nn.BatchNorm2d(3).eval(), images(4, 3, 2, 5)),
    "batch norm in training": (nn.BatchNorm1d(3), images(4, 3)),
    "convolution": (nn.Conv2d(3, 4, 3, padding=1), images(2, 3, 5, 6)),
    "stride": (
        nn.Conv2d(3, 4, (3, 2), stride=(2, 1), padding=(0, 1)),
        images(2, 3, 7, 6),
    ),
    "dilation": (nn.Conv1d(3, 4, 3, dilation=2, bias=False), images(2, 3, 9)),
    "groups": (nn.Conv2d(4, 6, 3, groups=2), images(2, 4, 5, 5)),
    "channel by channel": (nn.Conv2d(4, 4, 3, groups=4, padding=2), images(2, 4, 5, 5)),
    "several each": (nn.Conv1d(4, 8, 3, groups=4), images(2, 4, 6)),
    "three dimensions": (nn.Conv3d(2, 3, 2), images(2, 2, 3, 4, 3)),
    "one image": (nn.Conv2d(3, 4, 3), images(3, 5, 6)),
    "padding in words": (nn.Conv2d(3, 4, 3, padding="same"), images(2, 3, 5, 6)),
}


@pytest.mark.parametrize("name", CASES)
def test_values_and_second_derivatives(name):
    module, x = CASES[name]
    module = module.double()
    leaves = [x.requires_grad_(), *module.parameters()]

    def derivatives() -> list[torch.Tensor]:
        output = module(x)
        random = torch.Generator().manual_seed(0)
        weights = torch.randn(output.shape, generator=random, dtype=torch.float64)
        total = (weights * output.sin()).sum()
        slopes = torch.autograd.grad(total, leaves, create_graph=True)
        moved = sum((slope.cos().sum() for slope in slopes), x.new_zeros(()))
        return [output, *slopes, *torch.autograd.grad(moved, leaves)]

    right = derivatives()
    with Composed():
        found = derivatives()
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-10)


def test_what_is_mixed_is_left_to_torch():
    """Which precision torch computes in is its own choice."""
    x, weight = torch.randn(4, 3).bfloat16(), torch.ones(3)
    with Composed():
        assert F.layer_norm(x, (3,), weight).dtype == torch.bfloat16
