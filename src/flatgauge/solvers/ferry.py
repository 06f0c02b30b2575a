"""Long vectors on their way between host memory and a GPU."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

# Bytes of a buffer.
BUFFER = 2**27


class Ferry:
    """Copies between host memory and one device, through two pinned buffers.

    One is filled while the other is sent: 41 GB/s to an H200 and 31 from it, where plain
    copies had 9 and 14. Pinning whole vectors instead would take that memory from all
    other processes, and torch rounds it up to a power of two. On a CPU nothing has to be
    copied.

    Args:
        like: a tensor of the device and the dtype.
    """

    def __init__(self, like: Tensor):
        self.device = like.device
        self._entries = BUFFER // like.element_size()
        self._dtype = like.dtype
        self._buffers: list[Tensor] = []
        self._events: list[torch.Event | None] = [None, None]

    def brought(self, host: Tensor) -> Tensor:
        """The tensor on the device; itself if it is there."""
        if host.device == self.device:
            return host
        if self.device.type != "cuda" or not host.is_contiguous():
            return host.to(self.device)
        there = torch.empty(host.shape, dtype=self._dtype, device=self.device)
        for index, near, far in self._pieces(host, there):
            buffer = self._free(index)[: len(near)]
            buffer.copy_(near)
            far.copy_(buffer, non_blocking=True)
            self._sent(index)
        return there

    def put(self, vector: Tensor, host: Tensor) -> None:
        """Write what is on the device into host memory."""
        if vector.device.type != "cuda" or host.device == vector.device:
            host.copy_(vector)
            return
        # Each piece is read from its buffer while the next one is on its way.
        arriving: list[tuple[int, Tensor]] = []
        for index, near, far in self._pieces(host, vector):
            self._free(index)[: len(far)].copy_(far, non_blocking=True)
            self._sent(index)
            arriving.append((index, near))
            if len(arriving) > 1:
                self._read(*arriving.pop(0))
        for last in arriving:
            self._read(*last)

    def _read(self, index: int, near: Tensor) -> None:
        near.copy_(self._free(index)[: len(near)])

    def _pieces(
        self, host: Tensor, there: Tensor
    ) -> Iterator[tuple[int, Tensor, Tensor]]:
        near, far = (one.view(-1).split(self._entries) for one in (host, there))
        for index, pair in enumerate(zip(near, far, strict=True)):
            yield index % 2, *pair

    def _free(self, index: int) -> Tensor:
        """A buffer that no copy is under way from or to."""
        while len(self._buffers) <= index:
            buffer = torch.empty(self._entries, dtype=self._dtype, pin_memory=True)
            self._buffers.append(buffer)
        event = self._events[index]
        if event is not None:
            event.synchronize()
        return self._buffers[index]

    def _sent(self, index: int) -> None:
        self._events[index] = torch.cuda.current_stream(self.device).record_event()
