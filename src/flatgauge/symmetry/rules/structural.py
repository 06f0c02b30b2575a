"""Operators that move entries around: the labels are moved by the very same operator."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from flatgauge.symmetry.labels import ANY, Scale, nothing, settle, squeeze, varies
from flatgauge.symmetry.rules.registry import scale_rule
from flatgauge.symmetry.site import Integers, Site
from flatgauge.symmetry.system import ZERO

UNKNOWN = -2
"""Stands for the label of an entry that is not seen."""


@scale_rule(
    "aten::view", "aten::reshape", "aten::_unsafe_view", "aten::flatten",
    "aten::unflatten", "aten::squeeze", "aten::unsqueeze", "aten::_reshape_copy",
    "aten::view_as", "aten::view_copy", "aten::_reshape_alias",
)  # fmt: skip
def reshape(site: Site, x: Scale, *_: Any, **__: Any) -> Scale:
    """The same entries in the same order."""
    return x.reshape(site.shape)


@scale_rule(
    "aten::permute", "aten::transpose", "aten::t", "aten::numpy_T", "aten::movedim",
    "aten::swapaxes", "aten::slice", "aten::narrow", "aten::select", "aten::expand",
    "aten::expand_as", "aten::broadcast_to", "aten::diagonal", "aten::swapdims",
    "aten::permute_copy", "aten::transpose_copy", "aten::expand_copy", "aten::mT",
    "aten::slice_copy", "aten::select_copy", "aten::t_copy", "aten::as_strided",
)  # fmt: skip
def view(site: Site, x: Scale, *arguments: Any, **options: Any) -> Scale:
    """A view keeps stride 0 where it was."""
    if site.node.name == "aten::as_strided":
        return _strided(site, x, *arguments, **options)
    if site.node.name.startswith(("aten::expand", "aten::broadcast_to")):
        return x.expand(site.shape)
    return x.map(lambda label: _settled(site.node.target(label, *arguments, **options)))


def _strided(
    site: Site,
    x: Scale,
    sizes: Sequence[int],
    strides: Sequence[int],
    storage_offset: int | None = None,
) -> Scale:
    """Entries by their places in memory; one scale where these are not known."""
    single = site.system.collapse(x)
    layout = site.node.args[0].strides
    if layout is not None and x.shape.numel():
        own, start = layout
        reach = [(n - 1) * step for n, step in zip(x.shape, own, strict=True)]
        memory = torch.full((start + sum(reach) + 1,), UNKNOWN)
        memory.as_strided(x.shape, own, start).copy_(single.terms[0][1])
        first = start if storage_offset is None else storage_offset
        ends = [(n - 1) * step for n, step in zip(sizes, strides, strict=True)]
        if first + sum(ends) < len(memory):
            label = memory.as_strided(tuple(sizes), tuple(strides), first)
            if not bool((label == UNKNOWN).any()):
                terms = ((1.0, settle(label.contiguous())),)
                return Scale(label.shape, terms, zeros=single.zeros)
    site.coarse("places in memory that are not known")
    return site.uniform(x).reshape(()).expand(site.shape)


def _settled(label: Tensor) -> Tensor:
    """Part of a tensor may be constant where the whole is not."""
    return (
        settle(label) if sum(varies(label, d) for d in range(label.ndim)) > 1 else label
    )


@scale_rule(
    "aten::split", "aten::split_with_sizes", "aten::chunk", "aten::unbind",
    "aten::tensor_split", "aten::unsafe_split", "aten::unsafe_chunk",
    "aten::split_copy", "aten::split_with_sizes_copy", "aten::unbind_copy",
)  # fmt: skip
def pieces(site: Site, x: Scale, *arguments: Any, **options: Any) -> list[Scale]:
    """Several views at a time."""
    count = len(site.node.outputs)
    return [
        x.map(
            lambda label, i=i: _settled(
                site.node.target(label, *arguments, **options)[i]
            )
        )
        for i in range(count)
    ]


@scale_rule(
    "aten::roll", "aten::flip", "aten::repeat", "aten::tile", "aten::rot90",
    "aten::repeat_interleave", "aten::unfold", "aten::pixel_shuffle",
    "aten::pixel_unshuffle", "aten::channel_shuffle", "aten::fliplr", "aten::flipud",
    "aten::replication_pad1d", "aten::replication_pad2d", "aten::replication_pad3d",
    "aten::reflection_pad1d", "aten::reflection_pad2d", "aten::reflection_pad3d",
    "aten::native_channel_shuffle", "aten::unfold_copy", "aten::diag_embed",
)  # fmt: skip
def shuffle(site: Site, x: Scale, *arguments: Any, **options: Any) -> Scale:
    """Copies and permutations of entries."""
    known = [a.values if isinstance(a, Integers) else a for a in arguments]
    if any(a is None for a, b in zip(known, arguments, strict=True) if b is not None):
        return site.uniform(x).reshape(()).expand(site.shape)
    if site.node.name == "aten::diag_embed":
        return site.uniform(x).reshape(()).expand(site.shape)
    if site.node.name.startswith(("aten::replication", "aten::reflection")):
        rank = int(site.node.name.removesuffix("_copy")[-2])
        space = range(len(x.shape) - rank, len(x.shape))
        return site.uniform(x, space).expand(site.shape)
    return x.map(lambda label: settle(site.node.target(label, *known, **options)))


@scale_rule("aten::tril", "aten::triu")
def triangle(site: Site, x: Scale, *arguments: Any) -> Scale:
    """Entries off the triangle become exact zeros."""
    single = site.system.collapse(x)
    label = single.terms[0][1]
    kept = site.node.target(torch.ones(label.shape, dtype=torch.bool), *arguments)
    return Scale(x.shape, ((1.0, label.masked_fill(~kept, ANY)),), zeros=True)


@scale_rule("aten::cat", "aten::concat", "aten::concatenate")
def concatenate(site: Site, tensors: Sequence[Scale | Integers], dim: int = 0) -> Scale:
    """Label tensors side by side; dimensions constant in all of them stay so."""
    parts = [site.system.collapse(site.scale(t)) for t in tensors if t.shape.numel()]
    if not parts:
        return nothing(site.shape)
    axis = dim % len(site.shape)
    others = [[*p.shape[:axis], 1, *p.shape[axis + 1 :]] for p in parts]
    labels = [part.terms[0][1] for part in parts]
    probes = [
        label.narrow(axis, 0, 1).expand(shape)
        for label, shape in zip(labels, others, strict=True)
    ]
    kept = squeeze(probes)[0].shape
    narrow = []
    for label in labels:
        for d, size in enumerate(kept):
            if d != axis and size == 1:
                label = label.narrow(d, 0, 1)
        narrow.append(label)
    joined = settle(torch.cat(narrow, dim=axis)).expand(site.shape)
    zeros = any(part.zeros for part in parts)
    return Scale(site.shape, ((1.0, joined),), zeros)


@scale_rule("aten::stack")
def stack(site: Site, tensors: Sequence[Scale | Integers], dim: int = 0) -> Scale:
    """Concatenation along a new dimension."""
    axis = dim % len(site.shape)
    raised = [
        (s := site.scale(t)).reshape([*s.shape[:axis], 1, *s.shape[axis:]])
        for t in tensors
    ]
    return concatenate(site, raised, axis)


@scale_rule("aten::constant_pad_nd", "aten::pad")
def pad(
    site: Site,
    x: Scale,
    widths: Sequence[int],
    mode: str | int | float = "constant",
    value: int | float | None = None,
) -> Scale:
    """Zeros and infinities pad with any scale, another constant with scale 0."""
    if isinstance(mode, str) and mode != "constant":
        space = range(len(x.shape) - len(widths) // 2, len(x.shape))
        return site.uniform(x, space).expand(site.shape)
    border = site.scale((value or 0.0) if isinstance(mode, str) else mode)
    single = site.system.collapse(x)
    label = settle(
        torch.constant_pad_nd(
            single.terms[0][1], list(widths), ANY if border.zeros else ZERO
        )
    )
    return Scale(label.shape, ((1.0, label),), zeros=True)


@scale_rule("aten::slice_scatter", "aten::select_scatter", "aten::diagonal_scatter")
def scatter(
    site: Site, x: Scale, source: Scale | Integers, *arguments: Any, **options: Any
) -> Scale:
    """A part of a tensor overwritten by another tensor."""
    base = site.system.collapse(x)
    patch = site.system.collapse(site.scale(source))
    label = site.node.target(base.terms[0][1], patch.terms[0][1], *arguments, **options)
    label = settle(label)
    return Scale(label.shape, ((1.0, label),), zeros=base.zeros or patch.zeros)


@scale_rule("aten::im2col")
def to_patches(site: Site, x: Scale, *_: Any, **__: Any) -> Scale:
    """[..., channel, row, column] to [..., channel · tap, patch]: positions mix."""
    channels = site.uniform(x, (-1, -2)).reshape((*x.shape[:-2], 1))
    taps = site.shape[-2] // x.shape[-3]
    spread = channels.expand((*x.shape[:-2], taps))
    return spread.reshape((*site.shape[:-1], 1)).expand(site.shape)


@scale_rule("aten::col2im")
def from_patches(site: Site, x: Scale, *_: Any, **__: Any) -> Scale:
    """[..., channel · tap, patch] to [..., channel, row, column]: sums over patches."""
    channels = site.shape[-3]
    parts = x.reshape((*x.shape[:-2], channels, x.shape[-2] // channels, x.shape[-1]))
    return site.uniform(parts, (-1, -2)).expand(site.shape)
