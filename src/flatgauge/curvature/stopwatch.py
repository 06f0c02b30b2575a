"""How long work takes on its device, without waiting for it."""

from __future__ import annotations

import math
import time
from typing import Any

import torch


class Stopwatch:
    """The shortest time that some work took; on a GPU it is known a little later.

    `shortest` holds seconds, infinity before anything is known.
    """

    def __init__(self, device: torch.device):
        self.device = device
        self._shortest = math.inf
        self._started: Any = None
        self._pending: tuple[Any, Any, int] | None = None

    @property
    def shortest(self) -> float:
        """Seconds for one of the equal pieces of work."""
        if self._pending is not None and self._pending[1].query():
            start, end, count = self._pending
            self._pending = None
            seconds = start.elapsed_time(end) / 1e3
            self._shortest = min(self._shortest, seconds / count)
        return self._shortest

    def start(self) -> None:
        """Start anew."""
        self._started = self._now()

    def stop(self, count: int) -> None:
        """`count` equal pieces of work were done since the start."""
        started, now = self._started, self._now()
        if isinstance(started, float) and isinstance(now, float):
            self._shortest = min(self._shortest, (now - started) / count)
        elif self._pending is None:
            self._pending = (started, now, count)

    def _now(self) -> Any:
        if self.device.type != "cuda":
            return time.perf_counter()
        stream = torch.cuda.current_stream(self.device)
        return stream.record_event(torch.cuda.Event(enable_timing=True))
