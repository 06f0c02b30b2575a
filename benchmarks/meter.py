"""Peak memory: of the process on a CPU, of torch's allocations on a GPU."""

from __future__ import annotations

import ctypes
import resource
import sys
from contextlib import suppress
from pathlib import Path

import torch

from benchmarks.timing import free

STATUS, RESET = Path("/proc/self/status"), Path("/proc/self/clear_refs")


class Meter:
    """Bytes over what was held when the meter was built.

    On a CPU that is resident memory, with whatever the allocator does not give back.
    Linux can forget an earlier peak; elsewhere the peak since the start is taken.
    """

    def __init__(self, device: str):
        self.device = device
        _give_back(device)
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        elif RESET.exists():
            RESET.write_text("5")
        self._before = self._now()

    def held(self) -> int:
        """Bytes held now."""
        _give_back(self.device)
        return self._now() - self._before

    def peak(self) -> int:
        """The most bytes held since."""
        if self.device == "cuda":
            return torch.cuda.max_memory_allocated() - self._before
        return _resident("VmHWM") - self._before

    def _now(self) -> int:
        if self.device == "cuda":
            return torch.cuda.memory_allocated()
        return _resident("VmRSS")


def _give_back(device: str) -> None:
    """What is free, to the system: else a baseline would hide what is used again."""
    free(device)
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def _resident(field: str) -> int:
    if not STATUS.exists():
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
    line = next(x for x in STATUS.read_text().splitlines() if x.startswith(field))
    return int(line.split()[1]) * 1024
