"""A few samples of every batch, together: batches may each be alike within."""

from __future__ import annotations

from typing import Any

import torch

from flatgauge.nested import concatenated, row_layout, tensors_in
from flatgauge.units.samples import Samples, sliced

# Samples and bytes that are kept in all.
MOST, MOST_BYTES = 128, 2**26


class Pool:
    """The first and the last sample of each batch, as one batch across all of them."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._bytes = 0
        self._batches = 0

    def add(self, samples: Samples) -> None:
        """Keep two samples of a batch, if they fit to those kept before."""
        self._batches += 1
        part = samples.take(torch.arange(samples.count)[:: max(1, samples.count - 1)])
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
