"""A few samples of every batch, together: batches may each be alike within."""

from __future__ import annotations

from typing import Any

import torch

from flatgauge.data import map_nested, tensors_in
from flatgauge.units.samples import Samples, rows_of

# Samples and bytes that are kept in all.
MOST, MOST_BYTES = 128, 2**26


class Pool:
    """The first and the last sample of each batch, as one batch across all of them."""

    def __init__(self) -> None:
        self._parts: list[Any] = []
        self._bytes = 0
        self._batches = 0

    def add(self, outputs: Any, targets: Any) -> None:
        """Keep two samples of a batch, if they fit to those kept before."""
        self._batches += 1
        count = tensors_in((outputs, targets))[0].shape[0]
        ends = torch.tensor([0, count - 1] if count > 1 else [0])
        part = rows_of((outputs, targets), ends)
        if self._parts and _shapes(part) != _shapes(self._parts[0]):
            return
        self._bytes += sum(t.nbytes for t in tensors_in(part))
        if len(self._parts) < MOST // 2 and self._bytes <= MOST_BYTES:
            self._parts.append(part)

    def samples(self) -> Samples | None:
        """All of them, or None where there is only one batch."""
        if self._batches < 2 or len(self._parts) < 2:
            return None
        lists = [tensors_in(part) for part in self._parts]
        joined = iter([torch.cat(group) for group in zip(*lists, strict=True)])
        both = map_nested(lambda _: next(joined), self._parts[0])
        count = sum(group[0].shape[0] for group in lists)
        return Samples(count, lambda index: rows_of(both, index), exact=True)


def _shapes(value: Any) -> list[Any]:
    return [(t.shape[1:], t.dtype) for t in tensors_in(value)]
