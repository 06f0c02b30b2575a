"""Label tensors move as tensors do, and stay small."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
import torch
from hypothesis import given, settings

from flatgauge.symmetry.labels import Scale, nothing, reshape, settle, squeeze, unscaled


def channels(*shape: int, dim: int) -> torch.Tensor:
    """Labels 1, 2, ... along one dimension, constant along the others."""
    view = [1] * len(shape)
    view[dim] = shape[dim]
    return torch.arange(1, shape[dim] + 1).view(view).expand(shape)


SHAPES = [
    ((2, 6, 5), (2, 2, 3, 5)), ((2, 6, 5), (12, 5)), ((2, 6, 5), (2, 30)),
    ((2, 6, 5), (60,)), ((4, 6), (2, 2, 3, 2)), ((1, 6, 1), (6,)), ((6,), (1, 6, 1)),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new"), SHAPES)
def test_reshape_agrees_with_torch(old, new):
    for dim in range(len(old)):
        label = channels(*old, dim=dim)
        assert torch.equal(reshape(label, new), label.reshape(new))


def test_reshape_keeps_constant_dimensions_free():
    label = channels(64, 6, 50, dim=1)
    assert reshape(label, (64, 2, 3, 50)).untyped_storage().nbytes() == 6 * 8
    merged = reshape(label.transpose(1, 2), (64, 50, 2, 3))
    assert merged.untyped_storage().nbytes() == 6 * 8


def test_a_merged_batch_comes_apart_again():
    """(batch, heads · size) → (batch · heads, size) → (batch, heads, size)."""
    merged = reshape(channels(7, 12, dim=1), (28, 3))
    apart = reshape(merged, (7, 4, 3))
    assert apart.stride(0) == 0
    assert torch.equal(apart[3], torch.arange(1, 13).view(4, 3))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(0, 1000))
@settings(max_examples=50, deadline=None)
def test_settle_changes_no_entry(shape, seed):
    random = torch.Generator().manual_seed(seed)
    small = [n if torch.rand((), generator=random) < 0.5 else 1 for n in shape]
    label = torch.randint(0, 3, small, generator=random).expand(shape).clone()
    settled = settle(label)
    assert torch.equal(settled, label)
    assert squeeze([settled])[0].numel() <= label.numel()


def test_scales_cancel():
    scale = Scale(torch.Size([3, 4]), ((1.0, channels(3, 4, dim=1)),))
    assert (scale - scale).terms == ()
    assert (scale + scale).terms[0][0] == 2.0
    assert (scale * 0.0).terms == ()
    assert (scale + unscaled((3, 4))).terms[0][0] == 1.0
    assert (scale + nothing(())).zeros
