"""Any function of the outputs and the targets, as a loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from flatgauge.errors import LossError
from flatgauge.losses.loss import IGNORED, Loss


class CallableLoss(Loss):
    """A user's function: the mean over the batch (a scalar), or one value a sample.

    A mean counts for the valid targets (not -100) where targets are integers of two or
    more dimensions, else for the samples.
    """

    classification = False

    def __init__(self, function: Callable[[Any, Any], Tensor]):
        self.function = function
        self.name = getattr(function, "__name__", type(function).__name__)

    def total(self, outputs: Any, targets: Any) -> tuple[Tensor, int]:
        """The mean times the rows it averages, or the sum of the values."""
        try:
            value = self.function(outputs, targets)
        except Exception as error:
            shapes = [tuple(t.shape) for t in _tensors((outputs, targets))][:4]
            raise LossError(
                f"the loss '{self.name}' failed on outputs and targets of shape {shapes} "
                f"({type(error).__name__}: {error}): check that it takes them."
            ) from error
        count = count_rows(outputs, targets)
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise LossError(
                f"the loss '{self.name}' returned {type(value).__name__}, not a floating "
                "tensor: return the batch mean or one value a sample."
            )
        if value.ndim == 0 and count == 0:
            # The mean over nothing is NaN; a batch without valid targets adds nothing.
            return torch.zeros_like(value), 0
        if value.ndim == 0:
            return value * count, count
        if value.ndim == 1 and value.shape[0] in (count, len_of(outputs, targets)):
            return value.sum(), value.shape[0]
        raise LossError(
            f"the loss '{self.name}' returned shape {tuple(value.shape)} for a batch of "
            f"{count}: return the batch mean (a scalar) or one value a sample."
        )

    def sum(self, outputs: Any, targets: Any) -> Tensor:
        """The same as in `total`."""
        return self.total(outputs, targets)[0]


def len_of(outputs: Any, targets: Any) -> int:
    """The number of samples: the leading dimension of the outputs, or of the targets."""
    for tensor in _tensors((outputs, targets)):
        if tensor.ndim > 0:
            return tensor.shape[0]
    return 1


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _tensors(item)


def count_rows(outputs: Any, targets: Any) -> int:
    """What a mean over the batch averages: valid tokens, or samples."""
    if (
        isinstance(targets, Tensor)
        and targets.ndim >= 2
        and not targets.is_floating_point()
    ):
        return int((targets != IGNORED).sum())
    return len_of(outputs, targets)
