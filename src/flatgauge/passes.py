"""One pass over the data, and whether two of them agree."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.errors import DataError, NonFiniteError, NotDeterministicError
from flatgauge.losses import Loss

# Relative differences that rounding alone can make between two passes.
AGREEMENT = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True)
class Pass:
    """The mean loss, the rows and batches it came from, and the largest output."""

    value: float
    rows: int
    batches: int
    reach: float


def summed_up(totals: list[Tensor], rows: int, reaches: list[Tensor]) -> Pass:
    """One pass from the numbers of its batches.

    Raises:
        NonFiniteError: if the loss of a batch is not finite.
    """
    # One wait for the device.
    numbers = torch.stack([*totals, *reaches]).tolist() if totals else []
    losses, outputs = numbers[: len(totals)], numbers[len(totals) :]
    for index, loss in enumerate(losses):
        if not math.isfinite(loss):
            raise NonFiniteError(
                f"the loss of batch {index} is {loss}: check that batch and the model's "
                "outputs on it."
            )
    reach = max((one for one in outputs if not math.isnan(one)), default=0.0)
    return Pass(sum(losses) / max(rows, 1), rows, len(losses), reach)


def check_agreement(
    first: Pass, again: Pass, loss: Loss, dtype: torch.dtype, mode: str
) -> None:
    """Refuse data or a model that differ between two passes.

    Raises:
        DataError: if there is nothing to average.
        NotDeterministicError: if the two differ by more than rounding.
    """
    if first.rows == 0:
        raise DataError(
            "the data have no sample with a valid target: give at least one batch."
        )
    if (first.rows, first.batches) != (again.rows, again.batches):
        raise NotDeterministicError(
            f"two passes over the data gave {first.rows} and {again.rows} samples in "
            f"{first.batches} and {again.batches} batches: give data that stay the same."
        )
    allowed = AGREEMENT[dtype] * abs(first.value) + _rounding(first, loss, dtype)
    if abs(first.value - again.value) > allowed:
        advice = (
            "set dropout to 0 (or use mode='eval') and stop shuffling, which changes the "
            "batch statistics"
            if mode == "train"
            else "turn off random augmentation and random layers"
        )
        raise NotDeterministicError(
            f"two passes over the same data gave the losses {first.value:.9g} and "
            f"{again.value:.9g}: {advice}."
        )


def _rounding(one: Pass, loss: Loss, dtype: torch.dtype) -> float:
    """What rounding of the outputs can add to a mean loss that is nearly 0."""
    slack = 4 * torch.finfo(dtype).eps * one.reach
    if loss.classification:
        return slack
    return slack * (2 * math.sqrt(abs(one.value)) + slack)
