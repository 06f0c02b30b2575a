"""Parts of the data, as batches that can be read again and again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from flatgauge.data import Batch, Batches, take

# By index of a batch: which of its samples, or None for the whole batch.
Rows = Mapping[int, list[int] | None]


class Part:
    """Some samples of some batches, read anew each time.

    Args:
        batches: all of them, or a part already.
        rows: which samples.
    """

    def __init__(self, batches: Batches | Part, rows: Rows):
        self.source = batches.source
        self._batches = batches
        self._rows = rows

    def held(self) -> None:
        """No copies are kept."""

    def __iter__(self) -> Iterator[Batch]:
        count = 0
        for batch in self._batches:
            if batch.index not in self._rows:
                continue
            rows = self._rows[batch.index]
            part = batch if rows is None else take(batch, rows)
            yield replace(part, index=count)
            count += 1
