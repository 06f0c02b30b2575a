"""Which operations every path of the graph of a backward passes on its way to a parameter.

Autograd carries slopes along the edges of this graph alone. Where all paths from the outputs
to a parameter enter one operation by its output, the parameter's gradient is what flows in
through that operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from flatgauge.vectors import Params

# The index of a way that passes no operation.
PAST_ALL = -1

# An edge by which slopes come in: a node, and the number of its output.
Entry = tuple[Any, int]


def ways_in(
    outputs: Tensor, operations: Sequence[GradientEdge], point: Params
) -> dict[str, set[int]]:
    """For every parameter that slopes reach: the last operations on their ways to it.

    Args:
        outputs: where the slopes come from.
        operations: the outputs of operations.
        point: the parameters, leaves of the graph.

    >>> import torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> square = w * w
    >>> edges = [get_gradient_edge(square)]
    >>> ways_in(square.sum(), edges, {"w": w}), ways_in((square + w).sum(), edges, {"w": w})
    ({'w': {0}}, {'w': {0, -1}})
    """
    start = get_gradient_edge(outputs)
    entries = _entries((start.node, start.output_nr))
    leaves = {id(tensor): name for name, tensor in point.items()}
    indices = {(edge.node, edge.output_nr): i for i, edge in enumerate(operations)}
    found = {}
    for node in entries:
        name = leaves.get(id(getattr(node, "variable", None)))
        if name is not None:
            found[name] = _last(node, entries, indices)
    return found


def _entries(start: Entry) -> dict[Any, list[tuple[int, Any]]]:
    """For every node: its outputs by which slopes come in, and from which node."""
    entries: dict[Any, list[tuple[int, Any]]] = {start[0]: [(start[1], None)]}
    waiting = [start[0]]
    while waiting:
        node = waiting.pop()
        for behind, output in node.next_functions:
            if behind is None:
                continue
            if behind not in entries:
                entries[behind] = []
                waiting.append(behind)
            entries[behind].append((output, node))
    return entries


def _last(
    leaf: Any, entries: dict[Any, list[tuple[int, Any]]], indices: dict[Entry, int]
) -> set[int]:
    """Backwards from a leaf, up to the first operations that are met."""
    found, seen, waiting = set(), {leaf}, [leaf]
    while waiting:
        node = waiting.pop()
        for output, before in entries[node]:
            if (node, output) in indices:
                found.add(indices[node, output])
            elif before is None:
                found.add(PAST_ALL)
            elif before not in seen:
                seen.add(before)
                waiting.append(before)
    return found
