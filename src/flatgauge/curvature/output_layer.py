"""The layer that makes the class scores."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.losses import RowLoss
from flatgauge.objective import Objective
from flatgauge.vectors import Params, generator


def output_layer(objective: Objective) -> dict[str, int]:
    """The tensors of the output layer, with the dimension that runs over classes.

    Found by trying: moving a tensor by the same random amount for every class must move
    every class score by the same amount. Empty where there is none, and for losses that
    are no classification.
    """
    loss = objective.loss
    if not isinstance(loss, RowLoss) or not loss.classification:
        return {}
    random = generator(0)
    found = {}
    with objective.isolated():
        batch = next(objective.batches())

        def scores(params: Params) -> Tensor:
            return loss.rows(*objective.evaluate(params, batch)).outputs

        before = scores(objective.parameters)
        classes = before.shape[1]
        for name, tensor in objective.parameters.items():
            for axis in range(tensor.ndim):
                if tensor.shape[axis] != classes:
                    continue
                shape = list(tensor.shape)
                shape[axis] = 1
                shift = torch.randn(shape, generator=random, dtype=tensor.dtype)
                moved = tensor + shift.to(tensor.device) * (tensor.abs().mean() + 1)
                change = scores({**objective.parameters, name: moved}) - before
                uneven = change - change.mean(1, keepdim=True)
                noise = 1e3 * torch.finfo(tensor.dtype).eps
                size = max(float(change.norm()), float(before.norm()))
                if float(uneven.norm()) <= noise * size < float(change.norm()):
                    found[name] = axis
                    break
    return found
