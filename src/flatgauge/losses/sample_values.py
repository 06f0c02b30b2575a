"""A user's function that gives one value a sample, as rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatgauge.errors import LossError
from flatgauge.losses.counting import count_samples
from flatgauge.losses.custom import CallableLoss
from flatgauge.losses.loss import Loss, Rows, ValueLoss
from flatgauge.shapes import Float


@dataclass(frozen=True)
class SampleValues(ValueLoss):
    """ℓ_i itself as the one output of row i, whatever the model's outputs are.

    Its slope there is 1, so that J ℓ is that of the values. It has no curvature in output
    space: nothing of the Gauss-Newton kind can be built from it.
    """

    loss: CallableLoss
    what_needs: str

    classification = False

    @property
    def name(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Of the function."""
        return self.loss.name

    def rows(self, outputs: Any, targets: Any) -> Rows:
        """The values [M, 1].

        Raises:
            LossError: if the function gives another number of them than samples.
        """
        values = self.loss.value(outputs, targets)
        if values.shape != (count_samples(outputs, targets),):
            raise LossError(
                f"{self.what_needs} a loss per row, which '{self.name}' does not give: "
                "return one value per sample, or use a named loss."
            )
        places = torch.arange(len(values), device=values.device)
        return Rows(values[:, None], places, places)

    def values(self, rows: Rows) -> Float[Tensor, " M"]:
        """The outputs of the rows are their values."""
        return rows.outputs[:, 0]

    def sum(self, outputs: Any, targets: Any) -> Tensor:
        """Over the samples."""
        return self.loss.sum(outputs, targets)


def value_loss(loss: Loss, what_needs: str) -> ValueLoss:
    """The loss with a value for each row; else it is said what needs that."""
    if isinstance(loss, ValueLoss):
        return loss
    assert isinstance(loss, CallableLoss)
    return SampleValues(loss, what_needs)
