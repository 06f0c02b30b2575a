"""Through which operation the slopes of a backward come in to a parameter.

Autograd carries slopes along the edges of this graph alone. Where one edge leads to a
parameter, and all paths from the outputs to it enter one operation by its output, the
parameter's gradient is what flows in through that operation, and none of it flows on behind
it, to another use.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor
from torch.autograd.graph import GradientEdge, get_gradient_edge

from flatgauge.vectors import Params

# An edge by which slopes come in: a node, and the number of its output.
Entry = tuple[Any, int]


def ways_in(
    outputs: Tensor, operations: Sequence[GradientEdge], point: Params
) -> dict[str, int | None]:
    """For every parameter that slopes reach: the operation through which all of them come.

    None where there is another way, or another use.

    Args:
        outputs: where the slopes come from.
        operations: the outputs of operations.
        point: the parameters, leaves of the graph.

    >>> import torch
    >>> w = torch.ones(2, requires_grad=True)
    >>> square = w.square()
    >>> edges = [get_gradient_edge(square)]
    >>> ways_in(square.sum(), edges, {"w": w}), ways_in((square + w).sum(), edges, {"w": w})
    ({'w': 0}, {'w': None})
    """
    start = get_gradient_edge(outputs)
    entries = _entries((start.node, start.output_nr))
    leaves = {id(tensor): name for name, tensor in point.items()}
    indices = {(edge.node, edge.output_nr): i for i, edge in enumerate(operations)}
    return {
        leaves[id(node.variable)]: _only_way(node, entries, indices)
        for node in entries
        if id(getattr(node, "variable", None)) in leaves
    }


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


def _only_way(
    leaf: Any, entries: dict[Any, list[tuple[int, Any]]], indices: dict[Entry, int]
) -> int | None:
    """Backwards from a leaf with one edge, up to the first operations that are met."""
    if len(entries[leaf]) > 1:
        return None
    found, seen, waiting = set(), {leaf}, [leaf]
    while waiting:
        node = waiting.pop()
        for output, before in entries[node]:
            if (node, output) in indices:
                found.add(indices[node, output])
            elif before is None:
                return None
            elif before not in seen:
                seen.add(before)
                waiting.append(before)
    return found.pop() if len(found) == 1 else None
