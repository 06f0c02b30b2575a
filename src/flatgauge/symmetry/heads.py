"""Attention heads by use: which rows make their queries, keys and values, who reads them.

The rows of linear maps are numbered, and the numbers are moved through the program by the
very operators that move the entries (views, transpositions, cuts of a fused projection,
repeated key-value heads), until they reach the attention operator. Between query and key,
and between value and output, any invertible matrix may come in each head. Where positions
turn queries and keys, as rotary embeddings do, it is what commutes with that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from flatgauge.symmetry.graph import Graph, Node, Value
from flatgauge.symmetry.hidden_walk import COPIES, LARGEST, MOVES, NO_UNIT, RESHAPES
from flatgauge.symmetry.labels import reshape, squeeze
from flatgauge.symmetry.linear_maps import LinearMap, Named, linear_map, named_tensors
from flatgauge.symmetry.maps.heads import HeadBlock, HeadMatrices
from flatgauge.symmetry.rotary import between, turned

REPEATS = MOVES | {"aten::repeat_interleave", "aten::repeat"}
ATTENTION = "scaled_dot_product"


@dataclass(frozen=True)
class _Rows:
    """Whose rows a tensor holds, and which at each place."""

    source: LinearMap | Node
    labels: Tensor


@dataclass(frozen=True)
class _Operand:
    """Queries, keys or values [samples, heads, positions, size], or as their transposes."""

    value: Value
    transposed: bool = False


@dataclass(frozen=True)
class _Call:
    """An operator that heads go into."""

    node: Node
    query: _Operand | None
    key: _Operand | None
    value: _Operand | None


def head_matrices(graph: Graph) -> list[HeadMatrices]:
    """For every attention: the tensors between which matrices may come."""
    named = named_tensors(graph)
    known: dict[Value, _Rows] = {}
    reads: list[tuple[LinearMap | Node, Node, HeadBlock]] = []
    calls: list[_Call] = []
    found: list[HeadMatrices] = []
    for node in graph.nodes:
        reader = linear_map(node, named)
        if reader is not None and isinstance(_source(known, reader.x), Node):
            block = _columns(known[reader.x], reader, named)
            if block is not None:
                reads.append((known[reader.x].source, node, block))
        if reader is not None:
            known[reader.out] = _Rows(reader, _numbered(reader))
        elif (call := _call(node, known)) is not None:
            calls.append(call)
            out = node.outputs[0]
            if call.value is not None and out is not None:
                known[out] = _Rows(node, _head_places(out))
        else:
            _move(node, known)
    for call in calls:
        query, key, value = (
            _blocks(known, operand, named)
            if operand is not None
            and _all_read_by(graph, known, call.node, operand.value)
            else None
            for operand in (call.query, call.key, call.value)
        )
        found += _paired(query, key) or _turned(graph, named, call)
        if call.value is None:
            continue
        outs = [(node, block) for source, node, block in reads if source is call.node]
        ends = _ends(graph, call.node.outputs[0], known.__contains__)
        if len(outs) == 1 and ends == {outs[0][0]}:
            found += _paired(value, [outs[0][1]])
    return found


def _call(node: Node, known: dict[Value, _Rows]) -> _Call | None:
    """An attention, or one half of it: a product of queries and keys, or with values."""
    if ATTENTION in node.name:
        query, key, value = (_Operand(one) for one in node.args[:3])
        return _Call(node, query, key, value)
    if node.name != "aten::matmul" or any(len(v.shape) != 4 for v in node.inputs):
        return None
    left, right = node.args
    if left is right or isinstance(_source(known, left), LinearMap):
        return _Call(node, _Operand(left), _Operand(right, transposed=True), None)
    if isinstance(_source(known, right), LinearMap):
        return _Call(node, None, None, _Operand(right))
    # What turns queries and keys is not followed here.
    return _Call(node, _Operand(left), _Operand(right, transposed=True), None)


def _turned(graph: Graph, named: dict[Value, Named], call: _Call) -> list[HeadMatrices]:
    """Matrices between queries and keys that positions turn."""
    if call.query is None or call.key is None:
        return []
    query, key = (
        turned(graph, named, call.node, operand.value, operand.transposed)
        for operand in (call.query, call.key)
    )
    allowed = None if query is None or key is None else between(query, key)
    if query is None or key is None or not allowed:
        return []
    sides = (
        _placed(one.places, one.source.written, named, inverse=False)
        for one in (query, key)
    )
    return [replace(one, allowed=allowed) for one in _paired(*sides)]


def _all_read_by(
    graph: Graph, known: dict[Value, _Rows], call: Node, operand: Value
) -> bool:
    """Whether what the rows of an operand make arrives at this attention alone."""
    rows = known.get(operand)
    if rows is None or not isinstance(rows.source, LinearMap):
        return False
    own = squeeze([rows.labels])[0].unique()

    def holds(value: Value) -> bool:
        if _source(known, value) is not rows.source:
            return False
        return bool(torch.isin(squeeze([known[value].labels])[0], own).any())

    others = list(call.inputs)
    others.remove(operand)
    if any(map(holds, others)):
        return False
    return _ends(graph, rows.source.out, holds) == {call}


def _source(known: dict[Value, _Rows], value: Value) -> LinearMap | Node | None:
    return known[value].source if value in known else None


def _numbered(made: LinearMap) -> Tensor:
    spread = [1] * len(made.out.shape)
    spread[made.channel] = -1
    return torch.arange(made.units).reshape(spread).expand(made.out.shape)


def _head_places(out: Value) -> Tensor:
    """The number head · size + coordinate at each place of an attention's output."""
    heads, size = (out.shape[-3] if len(out.shape) > 3 else 1), out.shape[-1]
    numbers = torch.arange(heads * size).reshape(heads, 1, size)
    return (
        numbers.expand(out.shape)
        if len(out.shape) > 3
        else numbers[0].expand(out.shape)
    )


def _move(node: Node, known: dict[Value, _Rows]) -> None:
    """Take the numbers past an operator that moves entries, or past a constant factor."""
    given = [value for value in node.inputs if value in known]
    out = node.outputs[0] if node.outputs else None
    if len(given) != 1 or len(node.inputs) != 1 or out is None:
        return
    rows = known[given[0]]
    if out.shape.numel() > LARGEST:
        return
    if node.name in COPIES | {"aten::mul", "aten::div"}:
        known[out] = rows
    elif node.name in RESHAPES:
        known[out] = _Rows(rows.source, reshape(rows.labels, out.shape))
    elif node.name in REPEATS:
        args, kwargs = pytree.tree_map_only(
            Value, lambda _: rows.labels, (node.args, dict(node.kwargs))
        )
        results = node.target(*args, **kwargs)
        for value, labels in zip(
            node.outputs, (results,) if node.single else tuple(results), strict=True
        ):
            if value is not None:
                known[value] = _Rows(rows.source, labels)


def _blocks(
    known: dict[Value, _Rows], operand: _Operand, named: dict[Value, Named]
) -> list[HeadBlock] | None:
    """The rows [heads, size] of a projection's weight and bias that make each head."""
    rows = known.get(operand.value)
    if rows is None or not isinstance(rows.source, LinearMap) or rows.labels.ndim != 4:
        return None
    labels = rows.labels.mT if operand.transposed else rows.labels
    heads, (small,) = labels[0, :, 0], squeeze([labels])
    if not bool((small == heads[:, None]).all()):
        return None
    return _placed(heads, rows.source.written, named, inverse=False)


def _columns(
    rows: _Rows, reader: LinearMap, named: dict[Value, Named]
) -> HeadBlock | None:
    """The columns [heads, size] of the weight that reads an attention's output."""
    call, labels = rows.source, rows.labels.movedim(reader.channel_in, -1)
    line = squeeze([labels])[0].reshape(-1, labels.shape[-1])
    out = call.outputs[0] if isinstance(call, Node) else None
    if out is None or len(out.shape) != 4 or not bool((line == line[0]).all()):
        return None
    if sorted(line[0].tolist()) != list(range(out.shape[1] * out.shape[3])):
        return None
    places = line[0].argsort().reshape(out.shape[1], out.shape[3])
    blocks = _placed(places, (reader.read,), named, inverse=True)
    return None if blocks is None else blocks[0]


def _placed(
    places: Tensor,
    tensors: tuple[tuple[Value, int], ...],
    named: dict[Value, Named],
    *,
    inverse: bool,
) -> list[HeadBlock] | None:
    found = []
    for tensor, axis in tensors:
        known = named.get(tensor)
        if known is None or not known.once:
            return None
        place = known.axis(axis, len(tensor.shape))
        found.append(HeadBlock(known.name, place, places, inverse))
    return found


def _paired(
    left: list[HeadBlock] | None, right: list[HeadBlock] | None
) -> list[HeadMatrices]:
    """Matrices between two sides; heads that share the rows of a side share a matrix."""
    if left is None or right is None:
        return []
    sides = [left, [HeadBlock(b.name, b.axis, b.places, True) for b in right]]
    if sides[0][0].places.shape[1] != sides[1][0].places.shape[1]:
        return []
    heads = max(side[0].places.shape[0] for side in sides)
    groups = torch.arange(heads)
    for side in sides:
        places = side[0].places
        times = heads // len(places)
        places = places.repeat_interleave(times, 0)
        _, shared = torch.unique(places, dim=0, return_inverse=True)
        if len(shared.unique()) < len(groups.unique()):
            groups = shared
    names = [(b.name, b.places.flatten()) for side in sides for b in side]
    apart = all(
        one != other or not bool(torch.isin(rows, rest).any())
        for i, (one, rows) in enumerate(names)
        for other, rest in names[i + 1 :]
    )
    blocks = tuple(_grouped(block, groups) for side in sides for block in side)
    if not apart or NO_UNIT in {int(b.places.min()) for b in blocks}:
        return []
    if any(len(b.places.unique()) < b.places.numel() for b in blocks):
        return []
    size = blocks[0].places.shape[1]
    return [HeadMatrices(blocks, int(groups.max()) + 1, size)]


def _grouped(block: HeadBlock, groups: Tensor) -> HeadBlock:
    """Every set of rows once, with the number of its matrix."""
    times = len(groups) // len(block.places)
    places = torch.cat(
        [groups[:, None], block.places.repeat_interleave(times, 0)], dim=1
    )
    once = torch.unique(places, dim=0)
    return HeadBlock(block.name, block.axis, once[:, 1:], block.inverse, once[:, 0])


def _ends(
    graph: Graph, start: Value | None, holds: Callable[[Value], bool]
) -> set[Node | None]:
    """Who reads a tensor after all that moves its entries; None for the outputs.

    Args:
        graph: the program.
        start: the tensor.
        holds: whether a tensor made of it holds entries that count.
    """
    pending, ends = [start], set[Node | None]()
    while pending:
        value = pending.pop()
        if value is None or value in graph.outputs:
            return {None}
        if not holds(value):
            continue
        for reader in graph.uses.get(value, []):
            if _moves(reader):
                pending.extend(reader.outputs)
            elif reader.name != "aten::_assert_tensor_metadata":
                ends.add(reader)
    return ends


def _moves(node: Node) -> bool:
    """Whether entries are moved, or multiplied by one constant."""
    scaled = node.name in ("aten::mul", "aten::div") and len(node.inputs) == 1
    return scaled or node.name in COPIES | RESHAPES | REPEATS
