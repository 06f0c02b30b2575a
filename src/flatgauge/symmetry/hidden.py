"""Hidden units of any network: who writes them, what happens to each, and who reads them.

Starting at a linear map or a convolution, every output channel is a unit with a number.
The numbers are moved through the program by the very operators that move the entries,
until all that holds them is read by other linear maps. If nothing on the way mixes units
or treats one unlike another, they may change places; if all of it is odd, they may change
sign; and if nothing happens to them at all, any invertible matrix may come between.
"""

from __future__ import annotations

import torch

from flatgauge.symmetry.graph import Graph, Node, Value
from flatgauge.symmetry.hidden_walk import MeetsAnother, Mixed, Walk
from flatgauge.symmetry.linear_maps import LinearMap, Named, linear_map, named_tensors
from flatgauge.symmetry.maps.hidden import HiddenUnits


def hidden_units(graph: Graph) -> list[HiddenUnits]:
    """Every set of hidden units that can be followed from writers to readers."""
    named, found = named_tensors(graph), {}
    makers = {node.outputs[0]: node for node in graph.nodes if node.outputs}
    for node in graph.nodes:
        start = linear_map(node, named)
        if start is not None:
            units = _followed(graph, makers, named, start)
            if units is not None:
                found.setdefault(units.names, units)
    return list(found.values())


def _followed(
    graph: Graph,
    makers: dict[Value | None, Node],
    named: dict[Value, Named],
    start: LinearMap,
) -> HiddenUnits | None:
    """The units that `start` writes, with all others that meet them."""
    count = start.units
    writers = {start.node: torch.arange(count)}
    while True:
        walk = Walk(graph, makers, named, count)
        try:
            walk.go(writers)
        except MeetsAnother as other:
            if other.node in writers:
                return None
            writers[other.node] = other.units
        except Mixed:
            return None
        else:
            return walk.found()
