"""Residual streams that root-mean-square norms read, which may be rotated as a whole.

A pass through the program with the numbers of coordinates, as for hidden units. What keeps
a rotation is what treats all coordinates alike: sums with what else is written to the
stream, products with one number for all of them, and their sum of squares. A norm's gains
must all be equal, which their values decide.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flatgauge.symmetry.graph import Graph, Node, Value
from flatgauge.symmetry.hidden_walk import (
    COPIES,
    LARGEST,
    MOVES,
    PRODUCTS,
    RESHAPES,
    SUMS,
    Mixed,
    Walk,
    along,
    constant,
)
from flatgauge.symmetry.labels import reshape
from flatgauge.symmetry.linear_maps import TURNS, Named, linear_map, named_tensors
from flatgauge.symmetry.maps.streams import Stream

NORMS = {"aten::rms_norm", "aten::_fused_rms_norm"}
LENGTHS = {"aten::linalg_vector_norm", "aten::norm"}
SQUARES = {"aten::pow", "aten::square"}


@dataclass(frozen=True)
class _Written:
    """What a node writes: tensors with the axis over coordinates, and along which axis."""

    tensors: tuple[tuple[Value, int], ...]
    out: Value
    channel: int


class _Also(Exception):
    """Another node writes to the stream, too."""

    def __init__(self, node: Node) -> None:
        super().__init__()
        self.node = node


def streams(graph: Graph) -> list[Stream]:
    """Every stream that can be followed from all its writers to all its readers."""
    named = named_tensors(graph)
    makers = {value: node for node in graph.nodes for value in node.outputs}
    found: list[Stream] = []
    known: set[Node] = set()
    for node in graph.nodes:
        written = None if node in known else _written(node, named)
        if written is None:
            continue
        writers = [node]
        count = written.out.shape[written.channel]
        stream = _followed(graph, makers, named, count, writers)
        if stream is not None:
            found.append(stream)
            known.update(writers)
    return found


def _followed(
    graph: Graph,
    makers: dict[Value | None, Node],
    named: dict[Value, Named],
    count: int,
    writers: list[Node],
) -> Stream | None:
    """The stream of a writer; all others are added to the list."""
    while True:
        walk = _Turn(graph, makers, named, count)
        try:
            walk.follow(set(writers))
        except _Also as other:
            if other.node in writers:
                return None
            writers.append(other.node)
        except Mixed:
            return None
        else:
            return walk.stream() if walk.normalized else None


def _written(node: Node, named: dict[Value, Named]) -> _Written | None:
    if node.name == "aten::embedding" and node.args[0] in named:
        out = node.outputs[0]
        return out and _Written(((node.args[0], 1),), out, len(out.shape) - 1)
    found = linear_map(node, named)
    return found and _Written(found.written, found.out, found.channel)


@dataclass
class _Turn(Walk):
    """One pass with the numbers of a stream's coordinates."""

    squares: set[Value] = field(default_factory=set)
    gains: set[str] = field(default_factory=set)
    normalized: bool = False
    uses: dict[str, dict[Node, set[int]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(set))
    )

    def follow(self, writers: set[Node]) -> None:
        """Follow the coordinates to the end, and see that nobody else reads the tensors."""
        for node in self.graph.nodes:
            known = any(value in self.labels for value in node.inputs)
            if known and any(value is not None for value in node.outputs):
                self._step(node)
            if node in writers:
                self._start(node)
        if any(value in self.labels for value in self.graph.outputs):
            raise Mixed
        for name, uses in self.uses.items():
            for node in self._readers(name):
                if node not in uses:
                    raise _Also(node) if _written(node, self.named) else Mixed
            if len({frozenset(axes) for axes in uses.values()}) > 1:
                raise Mixed

    def stream(self) -> Stream:
        """What was followed."""
        axes = {
            name: tuple(sorted(next(iter(uses.values()))))
            for name, uses in self.uses.items()
        }
        return Stream(axes, frozenset(self.gains), self.count)

    def _readers(self, name: str) -> set[Node]:
        """Who reads a parameter, also turned."""
        values = [value for value, one in self.named.items() if one.name == name]
        return {
            node
            for value in values
            for node in self.graph.uses.get(value, [])
            if not (node.name in TURNS and node.outputs[0] in self.named)
        }

    def _start(self, node: Node) -> None:
        written = _written(node, self.named)
        if written is None or written.out in self.labels:
            raise Mixed
        shape = written.out.shape
        if shape[written.channel] != self.count or shape.numel() > LARGEST:
            raise Mixed
        for tensor, axis in written.tensors:
            self._used(node, tensor, axis)
        spread = [1] * len(shape)
        spread[written.channel] = -1
        units = torch.arange(self.count).reshape(spread)
        self.labels[written.out] = units.expand(shape)

    def _used(self, node: Node, tensor: Value, axis: int) -> None:
        known = self.named[tensor]
        place = known.axis(axis, len(tensor.shape))
        self.uses[known.name][node].add(place)

    def _step(self, node: Node) -> None:
        """Take the coordinates past one operator."""
        name, x = node.name, node.inputs[0]
        reader = linear_map(node, self.named)
        if reader is not None:
            self._coordinates(reader.x, reader.channel_in % len(reader.x.shape))
            self._used(node, *reader.read)
        elif name in COPIES or (name == "aten::type_as" and x in self.labels):
            self._keep(node, x, self.labels[x])
        elif name in RESHAPES and node.outputs[0] is not None:
            self._keep(node, x, reshape(self.labels[x], node.outputs[0].shape))
        elif name in MOVES and not self.squares.intersection(node.inputs):
            self._move(node)
        elif name in SUMS:
            self._add(node)
        elif name in SQUARES and (name == "aten::square" or node.args[1] == 2):
            self._square(node, x)
        elif name in PRODUCTS:
            self._multiply(node)
        elif name in ("aten::mean", "aten::sum"):
            self._average(node, x)
        elif name in LENGTHS and node.args[1:2] in ((), (2,), (2.0,)):
            self._measured(node, x, 2)
        elif name in NORMS:
            self._coordinates(x, len(x.shape) - 1)
            if list(node.args[1]) != [self.count]:
                raise Mixed
            self._gain(*node.args[2:3])
            self.normalized = True
            self._put(node, self.labels[x])
        else:
            raise Mixed

    def _keep(self, node: Node, x: Value, label: Tensor) -> None:
        self._put(node, label)
        if x in self.squares:
            self.squares.update(value for value in node.outputs if value is not None)

    def _coordinates(self, x: Value, axis: int | None = None) -> int:
        """The axis that runs over all coordinates, in their order."""
        label = self.labels.get(x)
        if label is None or x in self.squares:
            raise Mixed
        varying = [d for d in range(label.ndim) if not constant(label, d)]
        if self.count == 1 or len(varying) != 1 or axis not in (None, varying[0]):
            raise Mixed
        if not torch.equal(along(label, varying[0]), torch.arange(self.count)):
            raise Mixed
        return varying[0]

    def _add(self, node: Node) -> None:
        terms = node.args[:2]
        if not all(isinstance(term, Value) for term in terms):
            raise Mixed
        for term in terms:
            if term not in self.labels:
                raise _Also(self._writer_behind(term))
            self._coordinates(term)
        wide = torch.broadcast_tensors(*(self.labels[term] for term in terms))
        if not torch.equal(*wide):
            raise Mixed
        self._put(node, wide[0])

    def _writer_behind(self, value: Value) -> Node:
        """The node that writes what is added to the stream."""
        while True:
            node = self.makers.get(value)
            if node is None:
                raise Mixed
            if _written(node, self.named) is not None:
                return node
            passed = (
                COPIES | RESHAPES | MOVES | NORMS | SUMS | PRODUCTS | {"aten::type_as"}
            )
            shape = node.outputs[0].shape if node.outputs[0] is not None else None
            same = [one for one in node.inputs if one not in self.named]
            if node.name in SUMS | PRODUCTS | NORMS:
                same = [one for one in same if one.shape == shape]
            if node.name not in passed or not same:
                raise Mixed
            value = same[0]

    def _square(self, node: Node, x: Value) -> None:
        self._coordinates(x)
        self._put(node, self.labels[x])
        self.squares.update(value for value in node.outputs if value is not None)

    def _multiply(self, node: Node) -> None:
        left, right = node.args[:2]
        if left is right and node.name == "aten::mul":
            self._square(node, left)
            return
        x, y = (left, right) if left in self.labels else (right, left)
        if y in self.labels or (node.name == "aten::div" and x is right):
            raise Mixed
        if isinstance(y, Value) and y.shape.numel() > 1:
            axis = self._coordinates(x) - len(self.labels[x].shape)
            if len(y.shape) >= -axis and y.shape[axis] > 1:
                if y.shape.numel() != self.count:
                    raise Mixed
                self._gain(y)
        self._keep(node, x, self.labels[x])

    def _gain(self, gain: Value | None = None) -> None:
        """Take note of the tensor that a gain is made of, entry by entry."""
        while gain is not None and gain not in self.named:
            node = self.makers.get(gain)
            if node is None or len(node.inputs) != 1:
                raise Mixed
            if node.name not in COPIES | RESHAPES | SUMS | PRODUCTS:
                raise Mixed
            gain = node.inputs[0]
        if gain is not None:
            self.gains.add(self.named[gain].name)

    def _average(self, node: Node, x: Value) -> None:
        if x in self.squares:
            self._measured(node, x, 1)
            return
        axis = self._coordinates(x)
        self._reduce(node, self.labels[x], [axis])

    def _measured(self, node: Node, x: Value, place: int) -> None:
        """A sum over all coordinates that only sees how long the stream is."""
        label = self.labels[x]
        given = node.args[place] if len(node.args) > place else node.kwargs.get("dim")
        if given is None or given == []:
            raise Mixed
        dims = {d % label.ndim for d in ([given] if isinstance(given, int) else given)}
        varying = {d for d in range(label.ndim) if not constant(label, d)}
        if dims != varying or len(dims) != 1:
            raise Mixed
        if not torch.equal(along(label, *dims), torch.arange(self.count)):
            raise Mixed
        self.normalized = True
