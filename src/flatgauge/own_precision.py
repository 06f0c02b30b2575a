"""How finely a network computes, whatever the precision of its parameters.

Normalization layers, softmaxes and rotations of many language models are computed in
float32 by name, also where all parameters are float64. What was rounded there stays
rounded, so that no number about the network is finer than that.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from flatgauge.data import map_batch
from flatgauge.memo import once_per_network
from flatgauge.nested import tensors_in
from flatgauge.objective import Objective
from flatgauge.vectors import graph_nodes


@once_per_network
def own_precision(objective: Objective) -> torch.dtype:
    """The coarsest floating type that passes on what depends on the parameters.

    Read off the graph of the first batch's outputs, in which constants have no part.
    """
    with objective.isolated():
        # An objective in double has the batches of the one that it was made from.
        batch = map_batch(
            lambda t: t.to(objective.dtype) if t.is_floating_point() else t,
            objective.first_batch(),
        )
        outputs = objective.ranks.together(
            lambda: objective.evaluate(objective.leaves(), batch)[0]
        )
    return coarsest(tensors_in(outputs), objective.dtype)


def coarsest(tensors: Iterable[Tensor], dtype: torch.dtype) -> torch.dtype:
    """Of a dtype and those of the floating tensors that these were computed through."""
    met = {made.dtype for node in graph_nodes(tensors) for made in node._input_metadata}
    floating = {one for one in met if one.is_floating_point} | {dtype}
    return max(floating, key=lambda one: torch.finfo(one).eps)
