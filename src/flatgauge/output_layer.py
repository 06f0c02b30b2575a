"""The layer that makes the class scores."""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor

from flatgauge.data import Batch
from flatgauge.losses import RowLoss
from flatgauge.memo import once
from flatgauge.objective import Objective
from flatgauge.own_precision import own_precision
from flatgauge.vectors import generator

# A tensor and one of its dimensions.
Place = tuple[str, int]
# What is tried on tensors that may multiply the scores.
FACTOR = 1.5


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
        rows = loss.rows(*objective.evaluate(objective.parameters, batch))
        scores = rows.outputs.detach()
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


@once
def output_scaling(objective: Objective) -> list[str]:
    """Tensors that multiply all class scores by a factor, if they are multiplied by it.

    Found by trying, on every batch: the output layer; with one more tensor, such as
    the lengths of a weight norm; with all tensors of one more module, such as the norm
    before a tied head. Empty where none of them does it.
    """
    loss = objective.loss
    if not isinstance(loss, RowLoss) or not loss.classification:
        return []
    layer = list(output_layer(objective))
    others = [name for name in objective.parameters if name not in layer]
    modules: dict[str, list[str]] = {}
    for name in others:
        modules.setdefault(name.rpartition(".")[0], []).append(name)
    more = [[], *([name] for name in reversed(others)), *reversed(modules.values())]
    noise = 1e3 * torch.finfo(own_precision(objective)).eps

    def multiplies(names: list[str], batch: Batch) -> bool:
        scaled = {name: FACTOR * objective.parameters[name] for name in names}
        old, new = (
            loss.rows(*objective.evaluate(point, batch)).outputs.detach().double()
            for point in (objective.parameters, {**objective.parameters, **scaled})
        )
        return float((new - FACTOR * old).norm()) <= noise * float(old.norm())

    for names in ([*layer, *some] for some in more):
        if names and objective.holds(partial(multiplies, names)):
            return names
    return []


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
    change = rows.outputs.detach() - scores
    uneven = float((change - change.mean(1, keepdim=True)).norm())
    noise = 1e3 * torch.finfo(own_precision(objective)).eps
    rounding = noise * max(float(change.norm()), float(scores.norm()))
    return float(change.norm()) > rounding, uneven <= rounding
