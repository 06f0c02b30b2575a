"""How finely a network computes, whatever the precision of its parameters.

Normalization layers, softmaxes and rotations of many language models are computed in
float32 by name, also where all parameters are float64. What was rounded there stays
rounded, so that no number about the network is finer than that.
"""

from __future__ import annotations

from itertools import islice

import torch

from flatgauge.data import map_batch
from flatgauge.memo import once_per_network
from flatgauge.nested import tensors_in
from flatgauge.objective import Objective
from flatgauge.vectors import graph_nodes


@once_per_network
def own_precision(objective: Objective) -> torch.dtype:
    """The coarsest floating type that passes on what depends on the parameters.

    Read off the graph of the outputs on this process's first batch, in which constants
    have no part; a process without batches takes the parameters' own type.
    """
    met = {objective.dtype}
    with objective.isolated():
        for batch in islice(objective.batches(), 1):
            # An objective in double has the batches of the one that it was made from.
            placed = map_batch(
                lambda t: t.to(objective.dtype) if t.is_floating_point() else t, batch
            )
            outputs = objective.evaluate(objective.leaves(), placed)[0]
            met |= {
                made.dtype
                for node in graph_nodes(tensors_in(outputs))
                for made in node._input_metadata
                if made.dtype.is_floating_point
            }
    return max(met, key=lambda dtype: torch.finfo(dtype).eps)
