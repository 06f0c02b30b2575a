"""Operators that look entries up by index."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from flatgauge.symmetry.labels import Scale, settle, varies
from flatgauge.symmetry.rules.registry import scale_rule
from flatgauge.symmetry.site import Integers, Site

NORMS = (
    "aten::layer_norm", "aten::native_layer_norm", "aten::rms_norm",
    "aten::_fused_rms_norm",
)  # fmt: skip
"""Operators that normalize each row that was looked up on its own."""


def _alike(site: Site, x: Scale, dims: Iterable[int]) -> Scale:
    """One scale along dims that are looked into at places that are not known."""
    chosen = list(dims)
    if any(x.varies(dim) for dim in chosen):
        site.coarse("entries looked up at places that depend on the inputs")
    return site.uniform(x, chosen)


@scale_rule("aten::embedding")
def embedding(site: Site, table: Scale, index: Integers, *_: Any, **__: Any) -> Scale:
    """Any row may be looked up, so all rows share the scales of their columns.

    Not so where it is known which rows are, or where all that reads them normalizes each:
    there rows have scales of their own.
    """
    rows, columns = (
        Scale(
            table.shape,
            tuple(term for term in table.terms if varies(term[1], 0) == along_rows),
            table.zeros,
        )
        for along_rows in (True, False)
    )
    gauges = site.system.open_gauges
    gauge = next((n for n in table.gauges if n in gauges and gauges[n].count == 1), "")
    readers = site.graph.uses[site.node.args[0]]
    alone = bool(gauge) and all(one.name == "aten::embedding" for one in readers)
    if alone and index.values is not None:
        return _known_rows(site, table, index.values)
    if alone and site.feeds_only(*NORMS):
        site.system.loose = True
        site.epsilon(rows)
        table = columns
    elif gauge:
        del gauges[gauge]
        site.system.vanish(rows)
        table = columns
    row = site.system.collapse(site.uniform(table, [0]))
    return row.reshape(row.shape[1:]).expand(site.shape)


def _known_rows(site: Site, table: Scale, index: Tensor) -> Scale:
    """Rows that are not looked up go with one that is."""
    idle = torch.ones(table.shape[0], dtype=torch.bool)
    idle[index] = False
    if bool(idle.any()):
        seen = table.map(lambda label: label[index.reshape(-1)[:1]])
        site.system.vanish(table.map(lambda label: label[idle]) - seen)
    return table.map(lambda label: settle(label[index]))


@scale_rule("aten::index")
def index(site: Site, x: Scale, indices: Sequence[Integers | None]) -> Scale:
    """Known indices move the labels; unknown ones demand one scale along their dims."""
    known = [None if item is None else item.values for item in indices]
    wanted = [dim for dim, item in enumerate(indices) if item is not None]
    if all(known[dim] is not None for dim in wanted):
        return x.map(lambda label: settle(torch.ops.aten.index(label, known)))
    first = next(item for item in indices if item is not None)
    # A mask covers as many dimensions as it has, and leaves one.
    covered = len(first.shape)
    if len(wanted) == 1 and 1 < covered == len(x.shape) - len(site.shape) + 1:
        wanted = list(range(wanted[0], wanted[0] + covered))
    masks = any(len(item.shape) != 1 for item in indices if item is not None)
    common = _alike(site, x, wanted)
    if len(wanted) == 1 and not masks:
        return common.expand(site.shape)
    if wanted == list(range(len(wanted))):
        return common.reshape(common.shape[len(wanted) :]).expand(site.shape)
    return site.uniform(common).reshape(()).expand(site.shape)


@scale_rule("aten::index_select")
def index_select(site: Site, x: Scale, dim: int, chosen: Integers) -> Scale:
    """Slices along one dimension."""
    if chosen.values is not None:
        entries = chosen.values
        return x.map(lambda label: settle(torch.index_select(label, dim, entries)))
    return _alike(site, x, [dim]).expand(site.shape)


@scale_rule("aten::gather", "aten::take_along_dim")
def gather(site: Site, x: Scale, index: Integers | int, *rest: Any, **_: Any) -> Scale:
    """Entries looked up along one dimension."""
    dim, entries = (index, rest[0]) if isinstance(index, int) else (rest[0], index)
    places = entries.values
    if places is not None:
        return x.map(lambda label: settle(torch.gather(label, dim, places)))
    common = _alike(site, x, [dim])
    if all(common.shape[d] in (1, n) for d, n in enumerate(site.shape)):
        return common.expand(site.shape)
    return site.uniform(common).reshape(()).expand(site.shape)


@scale_rule("aten::index_put", "aten::_unsafe_index_put")
def index_put(
    site: Site,
    x: Scale,
    indices: Sequence[Integers | None],
    source: Scale | Integers,
    accumulate: bool = False,
) -> Scale:
    """Entries overwritten by others, at known places or anywhere."""
    known = [None if item is None else item.values for item in indices]
    placed = all(
        entry is not None for entry, item in zip(known, indices, strict=True) if item
    )
    if placed and not accumulate:
        base = site.system.collapse(x)
        patch = site.system.collapse(site.scale(source))
        label = base.terms[0][1].clone(memory_format=torch.contiguous_format)
        label = settle(torch.ops.aten.index_put(label, known, patch.terms[0][1]))
        return Scale(x.shape, ((1.0, label),), zeros=base.zeros or patch.zeros)
    # Behind the dimensions that are looked into, entries keep their places.
    wanted = sum(
        1 if len(i.shape) < 2 else len(i.shape) for i in indices if i is not None
    )
    kept = x.shape[wanted:] if all(item is not None for item in indices) else ()
    patch = site.scale(source)
    outer = len(patch.shape) - len(kept)
    if outer < 0 or patch.shape[outer:] != kept:
        kept, outer = (), len(patch.shape)
    common = _alike(site, x, range(len(x.shape) - len(kept))).reshape(kept)
    landed = site.uniform(patch, range(outer)).reshape(kept)
    return site.equal(common, landed).expand(site.shape)


@scale_rule("aten::masked_select", "aten::nonzero", "aten::masked_scatter")
def anywhere(site: Site, x: Scale, *others: Any) -> Scale:
    """Entries land at places that are not known: all share one scale."""
    common = site.uniform(x).reshape(())
    for other in others:
        if isinstance(other, Scale):
            common = site.equal(common, site.uniform(other).reshape(()))
    return common.expand(site.shape)
