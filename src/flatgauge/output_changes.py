"""How far the outputs of two objectives on the same data are apart, on every sample."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from flatgauge.data import Batch
from flatgauge.errors import FlatgaugeError
from flatgauge.losses import row_loss
from flatgauge.nested import tensors_in
from flatgauge.objective import Objective
from flatgauge.vocabulary import Kind

# What is looked at: something of an objective on one batch.
Look = Callable[[Objective, Batch], Tensor]


def output_change(before: Objective, after: Objective) -> float:
    """‖new − old‖ / ‖old‖ of the outputs, over all batches."""
    return _apart(before, after, _outputs, lambda old, new: new - old)


def change_beside(kind: str, before: Objective, after: Objective) -> float:
    """The relative change of the outputs that is not of this kind.

    A shift may move all scores of a row alike, a scaling all scores of all rows by one
    factor, and any other kind nothing.
    """
    if kind == Kind.OUTPUT_SHIFT:

        def uneven(old: Tensor, new: Tensor) -> Tensor:
            change = new - old
            return change - change.mean(1, keepdim=True)

        return _apart(before, after, scores, uneven)
    if kind == Kind.OUTPUT_SCALE:

        def products(batch: Batch) -> tuple[Tensor, Tensor]:
            old, new = _both(before, after, scores, batch)
            return (new * old).sum(), old.square().sum()

        along, whole = before.sum(products)
        # A head of zeros has no scores that a factor could change.
        factor = along / whole if whole else 1.0
        return _apart(before, after, scores, lambda old, new: new - factor * old)
    return output_change(before, after)


def scores(objective: Objective, batch: Batch) -> Tensor:
    """The class scores of the rows of a batch, [M, K], without derivatives."""
    loss = row_loss(objective.loss, "class scores need")
    rows = loss.rows(*objective.evaluate(objective.parameters, batch))
    return rows.outputs.detach().double()


def _apart(
    before: Objective,
    after: Objective,
    look: Look,
    change: Callable[[Tensor, Tensor], Tensor],
) -> float:
    """‖change(old, new)‖ / ‖old‖ over all batches."""

    def squares(batch: Batch) -> tuple[Tensor, Tensor]:
        old, new = _both(before, after, look, batch)
        return change(old, new).square().sum(), old.square().sum()

    moved, whole = (float(part) for part in before.sum(squares))
    if not moved:
        return 0.0
    return math.sqrt(moved / whole) if whole else math.inf


def _both(
    before: Objective, after: Objective, look: Look, batch: Batch
) -> tuple[Tensor, Tensor]:
    """The same of both, with the same random numbers."""
    devices = [before.device] if before.device.type == "cuda" else []
    found = []
    for one in (before, after):
        with torch.random.fork_rng(devices):
            torch.manual_seed(batch.index)
            found.append(look(one, batch))
    return found[0], found[1]


def _outputs(objective: Objective, batch: Batch) -> Tensor:
    """The outputs on a batch, without derivatives; several in one row."""
    outputs = objective.evaluate(objective.parameters, batch)[0]
    if isinstance(outputs, Tensor):
        return outputs.detach().double()
    found = [t for t in tensors_in(outputs) if t.is_floating_point()]
    if not found:
        raise FlatgaugeError(
            f"twins are compared by their outputs, but the model returned "
            f"{type(outputs).__name__} without tensors: pass forward= that returns some."
        )
    return torch.cat([t.detach().double().reshape(-1) for t in found])
