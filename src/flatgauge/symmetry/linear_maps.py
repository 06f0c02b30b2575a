"""Linear maps and convolutions of a program: their weights, and which axes are which."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from flatgauge.symmetry.graph import Graph, Node, Value

TURNS = {"aten::t", "aten::transpose", "aten::permute", "aten::numpy_T"}
CONVOLUTIONS = {"aten::conv1d": 1, "aten::conv2d": 2, "aten::conv3d": 3}


@dataclass(frozen=True)
class Named:
    """A tensor of the program that is a parameter or a buffer, or such a one turned.

    Attributes:
        name: of the parameter or buffer.
        once: whether the program reads it in one place only.
        turned: whether its two axes are exchanged.
    """

    name: str
    once: bool
    turned: bool = False

    def axis(self, axis: int, ndim: int) -> int:
        """The axis of the parameter itself."""
        return ndim - 1 - axis if self.turned else axis


@dataclass(frozen=True)
class LinearMap:
    """One linear map or convolution without groups, whose weight has a name.

    Attributes:
        node: the operator call.
        x: what it reads.
        out: what it writes.
        read: its weight, with the axis that runs over the channels of x.
        written: its weight and bias, each with the axis over the channels of `out`.
        channel_in: the dimension of x that runs over channels.
        channel: the same of `out`.
    """

    node: Node
    x: Value
    out: Value
    read: tuple[Value, int]
    written: tuple[tuple[Value, int], ...]
    channel_in: int
    channel: int

    @property
    def units(self) -> int:
        """The number of channels that it writes."""
        return self.out.shape[self.channel]


def named_tensors(graph: Graph) -> dict[Value, Named]:
    """Parameters and buffers, and matrices among them that are turned before use."""
    found = {}
    for name, value in (*graph.parameters.items(), *graph.buffers.items()):
        found[value] = Named(name, len(graph.uses.get(value, [])) == 1)
    for node in graph.nodes:
        if node.name not in TURNS:
            continue
        source, out = node.args[0], node.outputs[0]
        if source in found and out is not None and len(source.shape) == 2:
            known, plain = found[source], torch.empty(source.shape, device="meta")
            turned = node.target(plain, *node.args[1:]).stride() == plain.t().stride()
            once = known.once and len(graph.uses.get(out, [])) == 1
            found[out] = Named(known.name, once, known.turned ^ turned)
    return found


def linear_map(node: Node, named: dict[Value, Named]) -> LinearMap | None:
    """What a node is as a linear map, or None."""
    out = (*node.outputs[:1], None)[0]
    if out is None:
        return None
    bias = None
    if node.name == "aten::linear":
        (x, weight), rest = node.args[:2], node.args[2:]
        bias, out_axis, in_axis, channel = (*rest, None)[0], 0, 1, -1
    elif node.name in ("aten::addmm", "aten::mm", "aten::matmul"):
        *before, x, weight = node.args[:3] if node.name == "aten::addmm" else node.args
        bias, out_axis, in_axis, channel = (*before, None)[0], 1, 0, -1
    elif node.name in CONVOLUTIONS:
        (x, weight), rest = node.args[:2], node.args[2:]
        groups = node.args[6] if len(node.args) > 6 else node.kwargs.get("groups", 1)
        if groups != 1:
            return None
        bias, out_axis, in_axis = (*rest, None)[0], 0, 1
        channel = -1 - CONVOLUTIONS[node.name]
    else:
        return None
    if weight not in named or x in named or not isinstance(x, Value):
        return None
    if node.name not in CONVOLUTIONS and len(weight.shape) != 2:
        return None
    if bias is not None and (bias not in named or len(bias.shape) != 1):
        return None
    written = [(weight, out_axis)] + ([] if bias is None else [(bias, 0)])
    return LinearMap(
        node,
        x,
        out,
        (weight, in_axis),
        tuple(written),
        channel,
        channel % len(out.shape),
    )
