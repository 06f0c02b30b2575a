"""The spread of a number over halves of the data: what other samples would have given.

The data are split at random into halves A and B, of n_A and n_B rows. For the mean T of
independent contributions of variance σ², T of all rows has the variance σ² / (n_A + n_B),
and T_A − T_B has σ² (1/n_A + 1/n_B), so that

    n_A n_B / (n_A + n_B)² · (T_A − T_B)²

is an unbiased estimate of the former: a quarter of the squared difference of equal
halves. For other functions of the data that holds to first order; a bias that all small
samples share, such as that of a largest eigenvalue, cancels in the difference. The data
uncertainty is the root of the mean of this over several splits. Both halves see the same
random vectors, so that most of their noise cancels, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from flatgauge.data import samples_in
from flatgauge.errors import DataError, OptionError
from flatgauge.objective import Objective
from flatgauge.vectors import generator

# By how much the losses of halves may differ from that of the whole, relatively: ten and
# more times what batches of other sizes change by rounding, and less than what a sample
# that is counted twice, or not at all, does in data of a thousand.
HALVES_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
# The same in units in the last place of 1, for losses that are as good as 0.
HALVES_ROUNDINGS = 16

Unit = tuple[int, int | None]


@dataclass(frozen=True)
class Split:
    """Two halves of the data, as objectives."""

    halves: tuple[Objective, Objective]

    @property
    def weight(self) -> float:
        """What the squared difference counts: see the top of this file."""
        first, second = (half.sample_count for half in self.halves)
        return first * second / (first + second) ** 2


class Splits:
    """Random splits of the data into halves.

    Halves are of samples. Where samples influence each other, or cannot be told apart in
    a batch, they are of whole batches.

    Args:
        objective: model, data, loss and the point.
        count: how many.
        seed: of the splits.

    Raises:
        DataError: if there are no two parts to be told apart.
    """

    def __init__(self, objective: Objective, count: int, seed: int):
        self.objective = objective
        self.count = count
        self.seed = seed
        self.of, self._units = _units(objective)
        if len(self._units) < 2:
            reason = (
                "its samples influence each other"
                if objective.coupled
                else "its samples cannot be told apart"
                if self.of == "batches"
                else "it has one sample"
            )
            raise DataError(
                f"the data are one batch that cannot be halved, since {reason}: give more "
                "of them for an uncertainty of the data."
            )

    def __iter__(self) -> Iterator[Split]:
        random = generator(self.seed)
        for _ in range(self.count):
            order = torch.randperm(len(self._units), generator=random).tolist()
            middle = len(order) // 2
            first, second = sorted(order[:middle]), sorted(order[middle:])
            yield self._split(first, second)

    def _split(self, first: list[int], second: list[int]) -> Split:
        halves = self._half(first), self._half(second)
        whole, rows = self.objective.value(), self.objective.sample_count
        together = sum(half.value() * half.sample_count for half in halves)
        counted = sum(half.sample_count for half in halves)
        close = HALVES_TOLERANCE[self.objective.dtype]
        rounding = torch.finfo(self.objective.dtype).eps
        if counted != rows or not math.isclose(
            together / rows, whole, rel_tol=close, abs_tol=HALVES_ROUNDINGS * rounding
        ):
            raise DataError(
                "the losses of two halves do not add up to that of all the data, so that "
                "they are not halves of it: give batches with one row per sample."
            )
        return Split(halves)

    def _half(self, chosen: list[int]) -> Objective:
        rows: dict[int, list[int] | None] = {}
        for index, row in (self._units[one] for one in chosen):
            if row is None:
                rows[index] = None
            else:
                batch = rows.setdefault(index, [])
                assert batch is not None
                batch.append(row)
        return self.objective.part(rows)


def _units(objective: Objective) -> tuple[str, list[Unit]]:
    """What can be chosen, as (batch, row); a row of None is the whole batch."""
    lengths = objective.each(samples_in)
    if objective.coupled or None in lengths:
        return "batches", [(index, None) for index in range(len(lengths))]
    return "samples", [
        (index, row)
        for index, length in enumerate(lengths)
        for row in range(length or 0)
    ]


def check_resamples(resamples: int) -> None:
    """Raise an OptionError unless it is a number of splits, or 0 for none."""
    whole = isinstance(resamples, int) and not isinstance(resamples, bool)
    if not whole or resamples < 0:
        raise OptionError(
            f"resamples= is {resamples!r}: give a number of splits of the data, such as "
            "8, or 0 for none."
        )


def data_uncertainty(squares: list[float]) -> float | None:
    """The root of the mean of weighted squared differences; None if there is none."""
    return math.sqrt(math.fsum(squares) / len(squares)) if squares else None
