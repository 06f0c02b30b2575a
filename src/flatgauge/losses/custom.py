"""Any function of the outputs and the targets, as a loss."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor

from flatgauge.errors import LossError
from flatgauge.losses.loss import IGNORED, Loss


class CallableLoss(Loss):
    """A user's function: the mean over the batch (a scalar), or one value a sample."""

    classification = False

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]):
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def total(self, outputs: Tensor, targets: Tensor) -> tuple[Tensor, int]:
        """The mean times the rows it averages, or the sum of the values."""
        value = self.function(outputs, targets)
        count = count_rows(outputs, targets)
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise LossError(
                f"the loss '{self.name}' returned {type(value).__name__}, not a floating "
                "tensor: return the batch mean or one value a sample."
            )
        if value.ndim == 0:
            return value * count, count
        if value.ndim == 1 and value.shape[0] in (count, len_of(outputs, targets)):
            return value.sum(), value.shape[0]
        raise LossError(
            f"the loss '{self.name}' returned shape {tuple(value.shape)} for a batch of "
            f"{count}: return the batch mean (a scalar) or one value a sample."
        )


def len_of(outputs: Tensor, targets: Tensor) -> int:
    """The number of samples of a batch: the leading dimension of outputs or targets."""
    for value in (outputs, targets):
        if isinstance(value, Tensor) and value.ndim > 0:
            return value.shape[0]
    return 1


def count_rows(outputs: Tensor, targets: Tensor) -> int:
    """What a mean over the batch averages: valid tokens, or samples."""
    if (
        isinstance(targets, Tensor)
        and targets.ndim >= 2
        and not targets.is_floating_point()
    ):
        return int((targets != IGNORED).sum())
    return len_of(outputs, targets)
