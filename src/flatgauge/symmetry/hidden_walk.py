"""One pass through a program with the numbers of hidden units; see `symmetry.hidden`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from flatgauge.symmetry.graph import Graph, Node, Value
from flatgauge.symmetry.labels import reshape
from flatgauge.symmetry.linear_maps import LinearMap, Named, linear_map
from flatgauge.symmetry.maps.hidden import HiddenUnits, Part
from flatgauge.symmetry.rules.normalization import BATCH_NORMS

NO_UNIT = -1

COPIES = {
    "aten::dropout", "aten::clone", "aten::contiguous", "aten::alias", "aten::detach",
    "aten::to", "aten::_to_copy", "aten::neg", "aten::feature_dropout",
}  # fmt: skip
ODD = COPIES | {
    "aten::tanh", "aten::sin", "aten::atan", "aten::erf", "aten::sinh", "aten::tan",
    "aten::asinh", "aten::softshrink", "aten::hardshrink",
}  # fmt: skip
POINTWISE = ODD | {
    "aten::relu", "aten::gelu", "aten::silu", "aten::mish", "aten::sigmoid", "aten::exp",
    "aten::log_sigmoid", "aten::leaky_relu", "aten::elu", "aten::celu", "aten::selu",
    "aten::softplus", "aten::relu6", "aten::hardtanh", "aten::hardswish", "aten::square",
    "aten::hardsigmoid", "aten::abs", "aten::cos", "aten::sqrt", "aten::threshold",
    "aten::pow",
}  # fmt: skip
RESHAPES = {
    "aten::view", "aten::reshape", "aten::flatten", "aten::_unsafe_view",
    "aten::unflatten", "aten::squeeze", "aten::unsqueeze",
}  # fmt: skip
MOVES = {
    "aten::permute", "aten::transpose", "aten::select", "aten::slice", "aten::split",
    "aten::chunk", "aten::split_with_sizes", "aten::unbind", "aten::expand", "aten::cat",
    "aten::stack", "aten::narrow",
}  # fmt: skip
LINEAR_POOLS = {
    "aten::mean", "aten::sum", "aten::avg_pool1d", "aten::avg_pool2d",
    "aten::adaptive_avg_pool1d", "aten::adaptive_avg_pool2d", "aten::_adaptive_avg_pool2d",
    "aten::upsample_nearest2d", "aten::upsample_bilinear2d",
}  # fmt: skip
POOLS = LINEAR_POOLS | {
    "aten::max_pool1d", "aten::max_pool2d", "aten::adaptive_max_pool2d",
}  # fmt: skip
REDUCTIONS = {"aten::mean", "aten::sum"}
"""Pools along dimensions that are given; others go along the last one or two."""
SUMS = {"aten::add", "aten::sub"}
PRODUCTS = {"aten::mul", "aten::div"}
LARGEST = 2**22
"""Tensors with more entries than this are not followed."""


class Mixed(Exception):
    """Something happens to units that tells them apart or mixes them."""


class MeetsAnother(Exception):
    """Units meet others, entry by entry, which `node` writes in the order of `units`."""

    def __init__(self, node: Node, units: Tensor) -> None:
        super().__init__()
        self.node, self.units = node, units


@dataclass
class Walk:
    """One pass through the program with the numbers of units."""

    graph: Graph
    makers: dict[Value | None, Node]
    named: dict[Value, Named]
    count: int
    labels: dict[Value, Tensor] = field(default_factory=dict)
    parts: list[Part] = field(default_factory=list)
    odd: bool = True
    untouched: bool = True
    same: list[tuple[Tensor, Tensor]] = field(default_factory=list)

    def go(self, writers: dict[Node, Tensor]) -> None:
        """Follow the units of all writers to the end."""
        for node in self.graph.nodes:
            if node in writers:
                self._write(node, writers[node])
            elif any(value in self.labels for value in node.inputs) and any(
                node.outputs
            ):
                self._step(node)
        if any(value in self.labels for value in self.graph.outputs):
            raise Mixed

    def found(self) -> HiddenUnits | None:
        """The units, numbered anew where some turned out to be one."""
        parent = list(range(self.count))

        def root(unit: int) -> int:
            while parent[unit] != unit:
                unit = parent[unit]
            return unit

        for left, right in self.same:
            for a, b in zip(left.tolist(), right.tolist(), strict=True):
                parent[root(max(a, b))] = root(min(a, b))
        roots = sorted({root(unit) for unit in range(self.count)})
        number = torch.tensor([roots.index(root(u)) for u in range(self.count)])
        number = torch.cat([number, torch.tensor([NO_UNIT])])  # the last is that of -1
        parts = tuple(
            Part(part.name, part.axis, number[part.units], part.role)
            for part in self.parts
        )
        names = [part.name for part in parts]
        once = len(set(names)) == len(names)
        even = all(_evenly(part.units, len(roots)) for part in parts)
        if not (once and even and len(roots) > 1):
            return None
        if not any(part.role == "reads" for part in parts):
            return None
        return HiddenUnits(parts, len(roots), self.odd, self.untouched)

    def _write(self, node: Node, units: Tensor) -> None:
        found = linear_map(node, self.named)
        if found is None or any(value in self.labels for value in node.inputs):
            raise Mixed
        for tensor, axis in found.written:
            self._part(tensor, axis, units, "writes")
        shape = found.out.shape
        if shape.numel() > LARGEST:
            raise Mixed
        spread = [1] * len(shape)
        spread[found.channel] = -1
        self.labels[found.out] = units.reshape(spread).expand(shape)

    def _step(self, node: Node) -> None:
        """Take the units past one operator."""
        name = node.name
        reader = linear_map(node, self.named)
        if reader is not None and reader.x in self.labels:
            self._read(reader)
        elif name in POINTWISE:
            if len(node.inputs) > 1 or node.args[0] not in self.labels:
                raise Mixed  # an exponent that may differ between units, or is made of them
            self.odd &= name in ODD
            self.untouched &= name in COPIES
            self._put(node, self.labels[node.args[0]])
        elif name in RESHAPES and node.outputs[0] is not None:
            self._put(node, reshape(self.labels[node.args[0]], node.outputs[0].shape))
        elif name in MOVES:
            self._move(node)
        elif name in SUMS | PRODUCTS:
            self._combine(node)
        elif name in POOLS:
            self._pool(node)
        elif name in BATCH_NORMS and name != "aten::native_batch_norm":
            self._normalize(node)
        else:
            raise Mixed

    def _read(self, reader: LinearMap) -> None:
        others = [value for value in reader.node.inputs if value is not reader.x]
        if any(value in self.labels for value in others):
            raise Mixed
        units = along(self.labels[reader.x], reader.channel_in)
        tensor, axis = reader.read
        self._part(tensor, axis, units, "reads")

    def _move(self, node: Node) -> None:
        args, kwargs = pytree.tree_map_only(
            Value, self._numbers, (node.args, dict(node.kwargs))
        )
        results = node.target(*args, **kwargs)
        for out, label in zip(
            node.outputs, (results,) if node.single else tuple(results), strict=True
        ):
            if out is not None:
                self.labels[out] = label

    def _numbers(self, value: Value) -> Tensor:
        if value.shape.numel() > LARGEST:
            raise Mixed
        return self.labels.get(value, torch.full(value.shape, NO_UNIT))

    def _combine(self, node: Node) -> None:
        """Sums and products, entry by entry, with numbers, weights or other units."""
        left, right = node.args[:2]
        x, y = (left, right) if left in self.labels else (right, left)
        label, scales = self.labels[x], node.name in PRODUCTS
        if node.name == "aten::div" and x is right:
            self.odd = self.untouched = False
        if not isinstance(y, Value):
            self.odd &= scales
            self.untouched &= scales
        elif y in self.named or y.shape.numel() == 1:
            self._with_weights(y, label, scales)
        elif y in self.labels:
            other = self.labels[y]
            self._unite(label, other)
            self.odd &= not scales
            self.untouched &= not scales
        else:
            raise MeetsAnother(*self._writer_of(y, label))
        self._put(node, label)

    def _with_weights(self, y: Value, label: Tensor, scales: bool) -> None:
        lead = label.ndim - len(y.shape)
        wide = [d for d, size in enumerate(y.shape) if size > 1]
        if any(y.shape[d] != label.shape[d + lead] for d in wide) or len(wide) > 1:
            raise Mixed
        if wide:
            units = along(label, wide[0] + lead)
            self._part(y, wide[0], units, "scales" if scales else "writes")
            self.untouched &= not scales
        elif not scales:
            self.odd = self.untouched = False

    def _unite(self, left: Tensor, right: Tensor) -> None:
        left, right = torch.broadcast_tensors(left, right)
        if bool(((left == NO_UNIT) != (right == NO_UNIT)).any()):
            raise Mixed
        pairs = torch.stack([left.reshape(-1), right.reshape(-1)])
        pairs = torch.unique(pairs[:, pairs[0] != pairs[1]], dim=1)
        if pairs.shape[1]:
            self.same.append((pairs[0], pairs[1]))

    def _writer_of(self, value: Value, label: Tensor) -> tuple[Node, Tensor]:
        """Who writes what meets the units, and which unit each of its channels is."""
        node = self.makers.get(value)
        while node is not None and node.name in POINTWISE:
            node = self.makers.get(node.args[0])
        found = None if node is None else linear_map(node, self.named)
        if node is None or found is None or found.out.shape != label.shape:
            raise Mixed
        return node, along(label, found.channel)

    def _pool(self, node: Node) -> None:
        label, shape = self.labels[node.args[0]], node.outputs[0].shape  # pyright: ignore
        self.untouched &= node.name in LINEAR_POOLS
        self.odd &= node.name in LINEAR_POOLS
        varying = [d for d in range(label.ndim) if not constant(label, d)]
        if node.name in REDUCTIONS:
            self._reduce(node, label, varying)
            return
        pooled = 1 if node.name.endswith("1d") else 2
        if len(varying) != 1 or varying[0] >= label.ndim - pooled:
            raise Mixed
        spread = [1] * len(shape)
        spread[varying[0]] = -1
        units = along(label, varying[0])
        if shape[varying[0]] != units.numel():
            raise Mixed
        self._put(node, units.reshape(spread).expand(shape))

    def _reduce(self, node: Node, label: Tensor, varying: list[int]) -> None:
        dims = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim")
        if not dims:
            raise Mixed
        chosen = [d % label.ndim for d in ([dims] if isinstance(dims, int) else dims)]
        if any(d in varying for d in chosen):
            raise Mixed
        for dim in sorted(chosen, reverse=True):
            label = label.select(dim, 0)
        self._put(node, label.reshape(node.outputs[0].shape))  # pyright: ignore

    def _normalize(self, node: Node) -> None:
        label = self.labels[node.args[0]]
        units = along(label, 1)
        roles: Any = ("scales", "writes", "writes", "scales")
        for tensor, role in zip(node.args[1:5], roles, strict=True):
            if isinstance(tensor, Value):
                self._part(tensor, 0, units, role)
        self.untouched = False
        self._put(node, label)

    def _put(self, node: Node, label: Tensor) -> None:
        out = node.outputs[0]
        if out is None or tuple(label.shape) != tuple(out.shape):
            raise Mixed
        self.labels[out] = label

    def _part(self, tensor: Value, axis: int, units: Tensor, role: Any) -> None:
        known = self.named.get(tensor)
        if known is None or not known.once:
            raise Mixed
        place = known.axis(axis, len(tensor.shape))
        self.parts.append(Part(known.name, place, units, role))


def along(label: Tensor, dim: int) -> Tensor:
    """The units along one dimension, if they depend on no other."""
    others = [d for d in range(label.ndim) if d != dim % label.ndim]
    if not all(constant(label, d) for d in others):
        raise Mixed
    for d in sorted(others, reverse=True):
        label = label.select(d, 0)
    return label


def constant(label: Tensor, dim: int) -> bool:
    """Whether labels are the same all along a dimension."""
    if label.shape[dim] <= 1 or label.stride(dim) == 0:
        return True
    return torch.equal(label, label.narrow(dim, 0, 1).expand_as(label))


def _evenly(units: Tensor, count: int) -> bool:
    """Whether every unit has as many places as every other."""
    places: Iterable[int] = torch.bincount(units[units >= 0], minlength=count).tolist()
    return len(set(places)) == 1
