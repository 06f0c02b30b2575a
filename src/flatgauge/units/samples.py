"""Subsets of the samples of a batch, as outputs and targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatgauge.data import leading_size
from flatgauge.nested import (
    concatenated,
    made_of_tensors,
    map_nested,
    row_layout,
    tensors_in,
)

Pair = tuple[Any, Any]
# Samples and bytes that a pool keeps in all.
MOST, MOST_BYTES = 128, 2**26


@dataclass(frozen=True)
class Samples:
    """The samples of a batch: their number, and outputs and targets of any of them.

    `exact` says that these are rows of the batch's own outputs, without rounding.
    """

    count: int
    take: Callable[[Tensor], Pair]
    exact: bool


def sliced(outputs: Any, targets: Any) -> Samples | None:
    """Rows of outputs and targets, where every tensor has one per sample."""
    both = (outputs, targets)
    count = leading_size(both)
    if count is None or leading_size(outputs) is None or not made_of_tensors(both):
        return None
    return Samples(count, lambda index: rows_of(both, index), exact=True)


def rows_of(value: Any, index: Tensor) -> Any:
    """Some rows of every tensor."""
    return map_nested(lambda t: t.detach()[index.to(t.device)], value)


class Pool:
    """The first and the last sample of each batch, as one batch across all of them.

    Batches may each be alike within.
    """

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._bytes = 0
        self._batches = 0

    @classmethod
    def joined(cls, pools: list[Pool], device: torch.device) -> Pool:
        """All of several, one after the other, on this device."""
        found = cls()
        for pool in pools:
            for part in pool._parts:
                found._keep(map_nested(lambda t: t.to(device), part))
            found._batches += pool._batches
        return found

    def __getstate__(self) -> dict[str, Any]:
        # Other processes may have other devices.
        parts = [map_nested(Tensor.cpu, part) for part in self._parts]
        return {**self.__dict__, "_parts": parts}

    def add(self, samples: Samples) -> None:
        """Keep two samples of a batch, if they fit to those kept before."""
        self._batches += 1
        ends = torch.arange(samples.count)[:: max(1, samples.count - 1)]
        self._keep(samples.take(ends))

    def _keep(self, part: Any) -> None:
        if self._parts and row_layout(part) != row_layout(self._parts[0]):
            return
        self._bytes += sum(t.nbytes for t in tensors_in(part))
        if len(self._parts) < MOST // 2 and self._bytes <= MOST_BYTES:
            self._parts.append(part)

    def samples(self) -> Samples | None:
        """All of them, or None where there is only one batch."""
        if self._batches < 2 or len(self._parts) < 2:
            return None
        return sliced(*concatenated(self._parts))


def reach_of(outputs: Any) -> float:
    """The largest finite output."""
    found = [
        t.detach().abs().nan_to_num(0.0, 0.0, 0.0).max()
        for t in tensors_in(outputs)
        if t.is_floating_point() and t.numel()
    ]
    return float(torch.stack([one.double() for one in found]).max()) if found else 0.0


def odd_cut(count: int) -> int:
    """Where to cut a batch, near its middle, so that no small groups stay whole."""
    near = sorted(range(1, count), key=lambda k: abs(2 * k - count))
    return next((k for k in near if k % 2 and k % 3 and k % 5), 1)
