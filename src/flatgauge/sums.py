"""Sums over the batches of the data, and whether two mean losses agree."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.data import Batch
from flatgauge.errors import DataError, NonFiniteError, NotDeterministicError
from flatgauge.losses import Loss
from flatgauge.nested import map_leaves

T = TypeVar("T")
# Takes note of a batch, its outputs and its targets.
Watch = Callable[[Batch, Any, Any], None]

# The relative difference of two mean losses of the same data that is rounding. A deep
# network in float32 loses about a thousand units in the last place to sums in another
# order; what is random (dropout, augmentation) changes more than one part in 10,000.
REPEAT_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-4}


@dataclass(frozen=True)
class Losses:
    """The sum of the losses of each batch, its rows, and the largest output of all."""

    totals: list[float]
    sizes: list[int]
    reach: float


@dataclass(frozen=True)
class MeanLoss:
    """The mean loss, the rows of each batch that it came from, and the largest output.

    `shares` says how many of the batches each process has.
    """

    value: float
    sizes: tuple[int, ...]
    reach: float
    shares: tuple[int, ...]

    @classmethod
    def of(cls, parts: list[Losses]) -> MeanLoss:
        """The mean over all rows of all processes, added up in the order of batches."""
        sizes = tuple(size for part in parts for size in part.sizes)
        total = sum(one for part in parts for one in part.totals)
        reach = max(part.reach for part in parts)
        shares = tuple(len(part.sizes) for part in parts)
        return cls(total / max(sum(sizes), 1), sizes, reach, shares)

    @property
    def rows(self) -> int:
        """Of all batches."""
        return sum(self.sizes)

    @property
    def batches(self) -> int:
        """Their number."""
        return len(self.sizes)


def in_time(batches: Iterable[Batch]) -> Iterator[Batch]:
    """The batches, as long as the run has time: see `deadline.check`."""
    for batch in batches:
        deadline.check()
        yield batch


def losses_of(
    batches: Iterable[Batch],
    evaluate: Callable[[Batch], tuple[Any, Any]],
    loss: Loss,
    watch: Watch | None = None,
) -> Losses:
    """The losses of all batches, without derivatives.

    Raises:
        NonFiniteError: if the loss of a batch is not finite.
    """
    totals: list[Tensor] = []
    reaches: list[Tensor] = []
    sizes: list[int] = []
    # No torch.no_grad(): a user's forward may differentiate with respect to inputs.
    for batch in in_time(batches):
        outputs, targets = evaluate(batch)
        if batch.stand_in:
            continue
        total, rows = loss.total(outputs, targets)
        totals.append(total.detach().double().reshape(()))
        sizes.append(rows)
        if isinstance(outputs, Tensor) and outputs.numel():
            reaches.append(outputs.detach().abs().max().double())
        if watch is not None:
            watch(batch, outputs, targets)
    # One wait for the device.
    numbers = torch.stack([*totals, *reaches]).tolist() if totals else []
    losses, largest = numbers[: len(totals)], numbers[len(totals) :]
    for index, one in enumerate(losses):
        if not math.isfinite(one):
            raise NonFiniteError(
                f"the loss of batch {index} is {one}: check that batch and the model's "
                "outputs on it."
            )
    reach = max((one for one in largest if not math.isnan(one)), default=0.0)
    return Losses(losses, sizes, reach)


def summed(terms: Iterable[T]) -> T:
    """The sum of equal structures: numbers, tensors, and tuples or mappings of them.

    None stays None; the first term is not written to.

    >>> summed([(1, {"x": 2.0}), (3, {"x": 4.0})])
    (4, {'x': 6.0})
    """
    left = iter(terms)
    try:
        first = next(left)
    except StopIteration:
        message = "there is nothing to add up: give at least one batch."
        raise DataError(message) from None
    total, add = first, operator.add
    for term in left:
        total = map_leaves(
            lambda a, b, add=add: a if b is None else add(a, b), total, term
        )
        # Not before: what was given may be a view, or another's.
        add = operator.iadd
    return total


def check_repeats(
    first: MeanLoss, again: MeanLoss, loss: Loss, dtype: torch.dtype, mode: str
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
    allowed = REPEAT_TOLERANCE[dtype] * abs(first.value) + _rounding(first, loss, dtype)
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


def _rounding(one: MeanLoss, loss: Loss, dtype: torch.dtype) -> float:
    """What rounding of the outputs can add to a mean loss that is nearly 0."""
    slack = 4 * torch.finfo(dtype).eps * one.reach
    if loss.classification:
        return slack
    return slack * (2 * math.sqrt(abs(one.value)) + slack)
