"""Any function of the outputs and the targets, as a loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatgauge.errors import LossError
from flatgauge.losses.counting import BY_SAMPLES, BY_TARGETS, Counting, count_samples
from flatgauge.losses.loss import Loss, RowLoss
from flatgauge.losses.precision import InDouble
from flatgauge.nested import tensors_in


@dataclass(frozen=True)
class CallableLoss(Loss):
    """A user's function: the mean over the batch (a scalar), or one value per sample.

    Attributes:
        function: (outputs, targets) to a floating tensor.
        countings: what a mean may be a mean of, the likeliest first; the first is used.
        plain: the named loss that it should be, where it is a standard one.
        share: rows divided by weights, over all the data.
        wide: whether it is evaluated in float64.
        rounding: of its second derivatives in output space, as a share of their size.
        settled: whether all of this was found out on data.
    """

    function: Callable[[Any, Any], Tensor]
    countings: tuple[Counting, ...] = (BY_TARGETS, BY_SAMPLES)
    plain: RowLoss | None = None
    share: float = 1.0
    wide: bool = False
    rounding: float = 0.0
    settled: bool = False

    classification = False

    def __post_init__(self) -> None:
        name = getattr(self.function, "__name__", type(self.function).__name__)
        object.__setattr__(self, "name", name)

    def value(self, outputs: Any, targets: Any) -> Tensor:
        """What the function returns, if that is a floating tensor."""
        try:
            if self.wide:
                value = InDouble().call(self.function, outputs, targets)
            else:
                value = self.function(outputs, targets)
        except Exception as error:
            shapes = [tuple(t.shape) for t in tensors_in((outputs, targets))[:4]]
            raise LossError(
                f"the loss '{self.name}' failed on outputs and targets of shape {shapes} "
                f"({type(error).__name__}: {error}): check that it takes them."
            ) from error
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise LossError(
                f"the loss '{self.name}' returned {type(value).__name__}, not a floating "
                "tensor: return the batch mean or one value per sample."
            )
        return value

    def total(self, outputs: Any, targets: Any) -> tuple[Tensor, int]:
        """The mean times what it is a mean of, or the sum of the values."""
        value = self.value(outputs, targets)
        counting = self.countings[0]
        rows = counting.rows(outputs, targets)
        if value.ndim == 0:
            weight = counting.weight(outputs, targets)
            if weight == 0:
                # The mean over nothing is NaN; a batch without weight adds nothing.
                return torch.zeros_like(value), rows
            return value * (weight * self.share), rows
        if value.ndim == 1 and value.shape[0] in (
            rows,
            count_samples(outputs, targets),
        ):
            return value.sum(), value.shape[0]
        raise LossError(
            f"the loss '{self.name}' returned shape {tuple(value.shape)} for a batch of "
            f"{rows}: return the batch mean (a scalar) or one value per sample."
        )

    def sum(self, outputs: Any, targets: Any) -> Tensor:
        """The same as in `total`."""
        return self.total(outputs, targets)[0]
