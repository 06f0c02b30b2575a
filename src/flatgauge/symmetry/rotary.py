"""What lies between a projection and an attention where it mixes coordinates of heads.

Rotary embeddings turn queries and keys by their positions. The part of the program in
between is run on unit vectors, which gives a matrix R for each position; a query-key pair
sees q Rᵀ R' k, and what commutes with all of these may come in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from flatgauge.symmetry.graph import Graph, Node, Value
from flatgauge.symmetry.hidden_walk import COPIES, MOVES, PRODUCTS, RESHAPES, SUMS
from flatgauge.symmetry.linear_maps import LinearMap, Named, linear_map
from flatgauge.symmetry.maps.commutant import CommutingBlock, commutant

LINEAR = COPIES | MOVES | RESHAPES | {
    "aten::repeat_interleave", "aten::repeat", "aten::roll", "aten::view_as_complex",
    "aten::view_as_real", "aten::type_as",
}  # fmt: skip
LARGEST = 2**26
"""Entries that unit vectors of all rows may have together."""
POSITIONS = 12
"""Positions that are looked at."""
ALIKE = 1e-12
"""What matrices of two heads may differ by, relative to their size."""


class _Otherwise(Exception):
    """It is no such program."""


@dataclass(frozen=True)
class Turned:
    """An operand of an attention that a projection makes, turned by positions.

    Attributes:
        source: the projection.
        places: the rows [heads, size] that make each head, in ascending order.
        matrices: what each position makes of the rows of a head, [heads, positions, size,
            size].
    """

    source: LinearMap
    places: Tensor
    matrices: Tensor


def turned(
    graph: Graph,
    named: dict[Value, Named],
    call: Node,
    operand: Value,
    transposed: bool = False,
) -> Turned | None:
    """An operand [samples, heads, positions, size] as its projection makes it.

    Args:
        graph: the program.
        named: its parameters.
        call: the attention.
        operand: its queries or keys.
        transposed: whether they are [samples, heads, size, positions].

    Returns:
        None if it is made in another way, or if others read what makes it, or if a
        sequence has one position, which does not show how others turn.
    """
    if len(operand.shape) != 4 or operand.shape[3 if transposed else 2] < 2:
        return None
    try:
        cone = _Cone(graph, named, operand)
        made = cone.matrices(operand, transposed)
        places = _places(made)
        cone.check_readers(places, operand, call)
    except (_Otherwise, RuntimeError, TypeError, NotImplementedError):
        return None
    rows = places[:, None, None, :].expand(*made.shape[:3], -1)
    return Turned(cone.source, places, made.gather(-1, rows))


def between(query: Turned, key: Turned) -> tuple[CommutingBlock, ...] | None:
    """What commutes with all that queries and keys see of each other, in every head."""
    if query.matrices.shape[0] != key.matrices.shape[0]:
        return None
    seen = torch.einsum("htci,hscj->htsij", query.matrices, key.matrices)
    seen = seen.flatten(1, 2)
    if float((seen - seen[:1]).abs().max()) > ALIKE * float(seen.abs().max()):
        return None
    return commutant(seen[0])


class _Cone:
    """The operators between one projection and a tensor that is linear in it."""

    def __init__(self, graph: Graph, named: dict[Value, Named], end: Value) -> None:
        self.graph, self.named = graph, named
        self.makers = {v: node for node in graph.nodes for v in node.outputs}
        self._sources: dict[Value, LinearMap | None] = {}
        self._constant: dict[Value, Tensor] = {}
        places = (tensor.device for tensor in graph.constants.values())
        self.device = next(places, torch.device("cpu"))
        source = self._source(end)
        if source is None:
            raise _Otherwise
        self.source = source
        units = source.units * source.out.shape.numel()
        if units > LARGEST:
            raise _Otherwise

    def _source(self, value: Value) -> LinearMap | None:
        """The projection that a tensor depends on linearly; None for constants."""
        if value in self._sources:
            return self._sources[value]
        node = self.makers.get(value)
        if node is None:
            if value not in self.graph.constants:
                raise _Otherwise
            found = None
        else:
            found = linear_map(node, self.named)
            if found is None:
                found = self._through(node)
        self._sources[value] = found
        return found

    def _through(self, node: Node) -> LinearMap | None:
        # Who makes a tensor without entries is dead code.
        above = [self._source(one) for one in node.inputs if one.shape.numel()]
        known = {id(one): one for one in above if one is not None}
        if not known:
            return None
        if len({one.node for one in known.values()}) > 1:
            raise _Otherwise
        linear = node.name in LINEAR or (
            node.name in PRODUCTS
            and above.count(None) == len(above) - 1
            and (node.name == "aten::mul" or node.args[0] in node.inputs[:1])
        )
        if node.name in SUMS:
            linear = None not in above and len(above) == 2
        elif node.name in MOVES:
            linear = None not in above
        if not linear:
            raise _Otherwise
        return next(iter(known.values()))

    def _value(self, value: Value, known: dict[Value, Tensor]) -> Tensor:
        """A tensor of the program, where what the projection makes is given."""
        if value in known:
            return known[value]
        if value in self._constant:
            return self._constant[value]
        if value in self.graph.constants:
            return self.graph.constants[value]
        if not value.shape.numel():
            return torch.empty(value.shape, dtype=value.dtype, device=self.device)
        node = self.makers[value]
        args, kwargs = pytree.tree_map_only(
            Value, lambda one: self._value(one, known), (node.args, dict(node.kwargs))
        )
        results: Any = node.target(*args, **kwargs)
        own = known if self._sources.get(value) is not None else self._constant
        for one, result in zip(
            node.outputs, (results,) if node.single else tuple(results), strict=True
        ):
            if one is not None:
                own[one] = result
        return own[value]

    def _given(self, entries: Tensor) -> dict[Value, Tensor]:
        """What the projection makes: the same numbers at all places."""
        out = self.source.out
        spread = [1] * len(out.shape)
        spread[self.source.channel] = -1
        filled = entries.to(self.device, out.dtype).reshape(spread)
        return {out: filled.expand(out.shape).contiguous()}

    def matrices(self, end: Value, transposed: bool) -> Tensor:
        """What rows of the projection make, [heads, positions, size, rows]."""
        columns: list[Tensor] = []
        length = end.shape[3 if transposed else 2]
        steps = torch.linspace(0, length - 1, min(POSITIONS, length))
        for unit in torch.eye(self.source.units):
            found = self._value(end, self._given(unit)).detach().cpu().double()
            if not torch.equal(found, found[:1].expand_as(found)):
                raise _Otherwise  # samples have positions of their own
            found = found[0].mT if transposed else found[0]
            columns.append(found[:, steps.round().long()])
        return torch.stack(columns, -1)

    def check_readers(self, places: Tensor, end: Value, call: Node) -> None:
        """All that holds something of these rows is this operand, which one call reads."""
        entries = torch.zeros(self.source.units, dtype=torch.float64)
        entries[places.flatten()] = torch.arange(1, places.numel() + 1).double()
        known, pending = self._given(entries), [self.source.out]
        while pending:
            value = pending.pop()
            readers = self.graph.uses.get(value, [])
            if value is end and readers == [call]:
                continue
            if value in self.graph.outputs or value is end:
                raise _Otherwise
            if not bool((self._value(value, known) != 0).any()):
                continue
            for reader in readers:
                made = [one for one in reader.outputs if one is not None]
                aside = any(one not in self._sources for one in made)
                if aside and (reader.name not in LINEAR or len(reader.inputs) > 1):
                    raise _Otherwise
                self._sources.update(dict.fromkeys(made, self.source))
                pending.extend(made)


def _places(made: Tensor) -> Tensor:
    """The rows that each head is made of."""
    there = (made != 0).any(2).any(1)
    size = made.shape[2]
    if bool((there.sum(1) != size).any()):
        raise _Otherwise
    return torch.stack([row.nonzero().flatten() for row in there])
