"""The layer that makes the class scores."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.data import Batch
from flatgauge.losses import RowLoss
from flatgauge.memo import once
from flatgauge.objective import Objective
from flatgauge.vectors import generator

# A tensor and one of its dimensions.
Place = tuple[str, int]


@once
def output_layer(objective: Objective) -> dict[str, int]:
    """The tensors of the output layer, with the dimension that runs over classes.

    Found by trying: moving a tensor by the same random amount for every class must move
    every class score by the same amount, on every batch. Empty where there is none, and
    for losses that are no classification.
    """
    loss = objective.loss
    if not isinstance(loss, RowLoss) or not loss.classification:
        return {}
    even = [
        (name, axis)
        for name, tensor in objective.parameters.items()
        for axis in range(tensor.ndim)
    ]

    def look(batch: Batch) -> tuple[list[Place], list[Place]]:
        """Which of those that were even so far still are, and which move scores."""
        nonlocal even
        scores = loss.rows(*objective.evaluate(objective.parameters, batch)).outputs
        if scores.shape[0] == 0:
            return even, []
        changes = {
            (name, axis): _change(objective, loss, batch, scores, name, axis)
            for name, axis in even
            if objective.parameters[name].shape[axis] == scores.shape[1]
        }
        even = [one for one, (_, is_even) in changes.items() if is_even]
        return even, [one for one, (moves, _) in changes.items() if moves]

    found = objective.each(look)
    return {
        name: axis
        for name, axis in reversed(found[0][0])
        if all((name, axis) in still for still, _ in found)
        and any((name, axis) in moving for _, moving in found)
    }


def _change(
    objective: Objective,
    loss: RowLoss,
    batch: Batch,
    scores: Tensor,
    name: str,
    axis: int,
) -> tuple[bool, bool]:
    """Whether moving a tensor alike for all classes moves scores, and all of them alike.

    A batch that the tensor does not reach says nothing against it.
    """
    tensor = objective.parameters[name]
    shape = list(tensor.shape)
    shape[axis] = 1
    shift = torch.randn(shape, generator=generator(0), dtype=tensor.dtype)
    moved = tensor + shift.to(tensor.device) * (tensor.abs().mean() + 1)
    rows = loss.rows(*objective.evaluate({**objective.parameters, name: moved}, batch))
    change = rows.outputs - scores
    uneven = float((change - change.mean(1, keepdim=True)).norm())
    noise = 1e3 * torch.finfo(tensor.dtype).eps
    rounding = noise * max(float(change.norm()), float(scores.norm()))
    return float(change.norm()) > rounding, uneven <= rounding
