"""The same test on all of an objective's data: a group is read off a few samples."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.data import Batch, map_batch
from flatgauge.errors import FlatgaugeError, SymmetryError
from flatgauge.nested import tensors_in
from flatgauge.network import Network
from flatgauge.objective import Objective
from flatgauge.symmetry.group import Group
from flatgauge.symmetry.verify import SPREAD, allowed_change, relative_change


def verify_on_data(objective: Objective, group: Group) -> None:
    """Apply a random element and compare the outputs on every batch, in float64.

    Other samples may take another path through the network. In train mode, where what
    is exact may rest on running statistics, the examples' own test stands alone.

    Raises:
        SymmetryError: if the outputs of a batch change.
    """
    if not group.dimension or objective.network.mode == "train":
        return
    with objective.isolated():
        network, rounded = _network(objective, objective.first_batch(), group)
        names = list(network.parameters)
        element = group.random_element(seed=0, spread=SPREAD)
        twin = group.act(network.model_at(network.parameters), element)
        moved = network.with_model(twin, names, dtype=network.dtype)

    def check(batch: Batch) -> None:
        before, after = (_outputs(one, batch) for one in (network, moved))
        change = relative_change(before, after)
        if not change <= allowed_change(rounded):
            raise SymmetryError(
                f"a rescaling that preserves the outputs of the first samples changes "
                f"those of batch {batch.index} by {change:.1e}, which take another "
                "path: use symmetries(model, example_inputs) with inputs that take "
                "all paths."
            )

    objective.sum(check)


def _network(objective: Objective, batch: Batch, group: Group) -> tuple[Network, bool]:
    """The network in float64 where it runs in it, and whether it rounds more coarsely."""
    try:
        double = objective.in_double().network
        _outputs(double, batch)
    except (FlatgaugeError, RuntimeError):
        # An operator without a double-precision kernel.
        point = objective.parameters
        own = objective.network.model_at(point)
        return objective.network.with_model(own, list(point)), True
    return double, group.rounded


@torch.no_grad()
def _outputs(network: Network, batch: Batch) -> list[Tensor]:
    placed = map_batch(
        lambda t: t.to(network.dtype) if t.is_floating_point() else t, batch
    )
    outputs = network.evaluate(network.parameters, placed)[0]
    return [t for t in tensors_in(outputs) if t.is_floating_point()]
