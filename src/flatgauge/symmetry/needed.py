"""Which entries of a program's tensors have an effect on its outputs.

A network that reads out its class token leaves the other tokens of the last block without
effect, so that nothing ties their scales there. Going backwards from the outputs, masks are
moved by the very operators that moved the entries.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from flatgauge.symmetry.graph import Graph, Node, Value

MOVES = {
    "aten::select", "aten::slice", "aten::narrow", "aten::split", "aten::chunk",
    "aten::split_with_sizes", "aten::unbind", "aten::cat", "aten::stack", "aten::view",
    "aten::reshape", "aten::flatten", "aten::permute", "aten::transpose", "aten::expand",
    "aten::squeeze", "aten::unsqueeze", "aten::_unsafe_view", "aten::unflatten",
    "aten::diagonal",
}  # fmt: skip
ENTRYWISE = {
    "aten::add", "aten::sub", "aten::mul", "aten::div", "aten::relu", "aten::gelu",
    "aten::silu", "aten::tanh", "aten::sigmoid", "aten::dropout", "aten::neg", "aten::to",
    "aten::_to_copy", "aten::clone", "aten::contiguous",
}  # fmt: skip
TRIANGLES = {"aten::tril", "aten::triu"}
ROWWISE = {"aten::linear", "aten::layer_norm", "aten::rms_norm"}
"""Operators that go along the last dimensions of their first argument."""
LARGEST = 2**21
"""Tensors with more entries than this count as needed in full."""

Mask = Tensor | None
"""Which entries are needed; None where all are."""


def partly_needed(graph: Graph) -> dict[Value, Tensor]:
    """A mask for every tensor of which some entries have no effect on the outputs."""
    needs: dict[Value, Mask] = dict.fromkeys(graph.outputs)
    for node in reversed(graph.nodes):
        for value in node.inputs:
            if needs.get(value, value) is not None:
                mask = _read(node, value, needs)
                known = needs.get(value)
                if mask is not None and known is not None:
                    mask = mask | known
                full = mask is None or bool(mask.all())
                needs[value] = None if full else mask
    return {value: mask for value, mask in needs.items() if mask is not None}


def _read(node: Node, value: Value, needs: dict[Value, Mask]) -> Mask:
    """The entries of one input that a node needs for what is needed of its outputs."""
    made = [out for out in node.outputs if out is not None and out in needs]
    large = max((v.shape.numel() for v in (value, *made)), default=0) > LARGEST
    if large or not made:
        return None
    if node.name in MOVES:
        return _moved(node, value, needs)
    mask = needs[made[0]]
    if node.name in TRIANGLES:
        kept = node.target(
            torch.ones(value.shape, dtype=torch.bool), *node.args[1:], **node.kwargs
        )
        return kept if mask is None else kept & mask
    if mask is None or len(made) > 1:
        return None
    if node.name in ENTRYWISE:
        # An input that was spread over the output is needed where any of its copies is.
        return mask.int().sum_to_size(value.shape).bool()
    if node.name in ROWWISE and value is node.args[0]:
        dims = 1 if node.name == "aten::linear" else len(node.args[1])
        kept = mask.flatten(-dims).any(-1)
        return kept.reshape(*kept.shape, *[1] * dims).expand(value.shape)
    return None


def _moved(node: Node, value: Value, needs: dict[Value, Mask]) -> Mask:
    """Numbers for the entries of one input, none for those of others, moved by the node."""
    numbers = torch.arange(value.shape.numel()).reshape(value.shape)
    args, kwargs = pytree.tree_map_only(
        Value,
        lambda one: numbers if one is value else torch.full(one.shape, -1),
        (node.args, dict(node.kwargs)),
    )
    results = node.target(*args, **kwargs)
    needed = torch.zeros(value.shape.numel(), dtype=torch.bool)
    for number in _needed(node, (results,) if node.single else tuple(results), needs):
        needed[number[number >= 0]] = True
    return needed.reshape(value.shape)


def _needed(
    node: Node, results: tuple[Tensor, ...], needs: dict[Value, Mask]
) -> Iterator[Tensor]:
    for out, result in zip(node.outputs, results, strict=True):
        if out is not None and out in needs:
            mask = needs[out]
            yield result.reshape(-1) if mask is None else result[mask]
