"""Memory: how much is free, and how much a graph holds."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.host_memory import available_memory

# The part of a budget that kept graphs may fill.
KEPT_SHARE = 0.65


def free_memory(device: torch.device) -> int:
    """Bytes that are free on the device, with what torch has cached there."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0] + cached_memory(device)
    return available_memory()


def cached_memory(device: torch.device) -> int:
    """Bytes that torch holds on a GPU without using them."""
    return _current("reserved_bytes", device) - _current("allocated_bytes", device)


def _current(what: str, device: torch.device) -> int:
    # torch.cuda.memory_allocated makes a table of all the statistics, which takes longer.
    return torch.cuda.memory_stats_as_nested_dict(device)[what]["all"]["current"]


def memory_budget(device: torch.device, given: int | None) -> int:
    """What was given, or half of what is free."""
    return free_memory(device) // 2 if given is None else given


def can_be_kept(size: int, budget: int) -> bool:
    """Whether graphs of that many bytes leave room for one batch's work.

    They cut up the memory, so that the peak was up to 1.45 times what is kept.
    """
    return size <= KEPT_SHARE * budget


class AllocatedBytes:
    """Counts the bytes on a GPU that were taken while the context was open, and are held."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.total = 0

    def __enter__(self) -> AllocatedBytes:
        self.total = -_current("allocated_bytes", self.device)
        return self

    def __exit__(self, *error: object) -> None:
        # Below 0 where garbage was collected meanwhile.
        self.total = max(0, self.total + _current("allocated_bytes", self.device))


class SavedBytes:
    """Counts the bytes that autograd saves for later while the context is open."""

    def __init__(self) -> None:
        self._storages: dict[int, int] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)

    @property
    def total(self) -> int:
        """Bytes over all distinct storages."""
        return sum(self._storages.values())

    def _pack(self, tensor: Tensor) -> tuple[Tensor, int]:
        storage = tensor.untyped_storage()
        self._storages[storage.data_ptr()] = storage.nbytes()
        # Detached: a hook that keeps an output itself would make a reference cycle.
        return tensor.detach(), tensor._version

    def _unpack(self, saved: tuple[Tensor, int]) -> Tensor:
        tensor, version = saved
        # torch makes this check itself only where there are no hooks.
        if tensor._version != version:
            raise RuntimeError(
                "a saved tensor has been modified by an inplace operation"
            )
        return tensor

    def __enter__(self) -> SavedBytes:
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)


def kept_bytes(device: torch.device) -> AllocatedBytes | SavedBytes:
    """Counts what is kept for later; hooks on saved tensors would slow a GPU down."""
    return AllocatedBytes(device) if device.type == "cuda" else SavedBytes()
