"""Losses by name or from a callable, each with its curvature in output space."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from flatgauge.errors import LossError
from flatgauge.losses.cross_entropy import CrossEntropy
from flatgauge.losses.custom import CallableLoss
from flatgauge.losses.loss import Loss, RowLoss
from flatgauge.losses.loss import row_loss as row_loss
from flatgauge.losses.mean_squared_error import MeanSquaredError
from flatgauge.losses.normalized_cross_entropy import NormalizedCrossEntropy
from flatgauge.losses.sample_values import value_loss as value_loss
from flatgauge.losses.standard import standard_loss
from flatgauge.losses.weighted_cross_entropy import WeightedCrossEntropy

NAMED: dict[str, type[RowLoss]] = {
    loss.name: loss for loss in (CrossEntropy, MeanSquaredError, NormalizedCrossEntropy)
}


def resolve_loss(loss: str | Loss | Callable[[Tensor, Tensor], Tensor]) -> Loss:
    """A `Loss` from a name or a callable.

    >>> resolve_loss("mse").name
    'mse'
    """
    if isinstance(loss, CallableLoss | WeightedCrossEntropy) and loss.function:
        # What was found out about it on other data does not hold on these.
        loss = loss.function
    if isinstance(loss, Loss):
        return loss
    if isinstance(loss, str):
        if loss in NAMED:
            return NAMED[loss]()
        known = ", ".join(f"'{name}'" for name in NAMED)
        raise LossError(f"the loss '{loss}' is not known: use {known}, or a callable.")
    if callable(loss):
        return standard_loss(loss) or CallableLoss(loss)
    raise LossError(
        f"loss= is {type(loss).__name__}: give a name or a callable(outputs, targets)."
    )
