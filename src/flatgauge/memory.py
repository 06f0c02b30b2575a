"""Memory: how much is free, and how much a graph holds."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from flatgauge.errors import OptionError
from flatgauge.host_memory import available_memory

# The parts of a budget that kept graphs and the basis of a Lanczos run may fill. Graphs cut
# up the memory, so that the peak was up to 1.45 times what is kept.
KEPT_SHARE, BASIS_SHARE = 0.65, 0.3
# Vectors that have room on a GPU before graphs do, up to a part of the budget: from so many
# on, a Lanczos run that restarts takes about as many products as one that need not.
BASIS_VECTORS, BASIS_MOST = 12, 0.8
# Vectors beside these while a product is made: arguments, images, gradients and scales. What
# is left of the budget holds them unless they are large.
WORK_VECTORS, WORK_SHARE = 8, 0.05
# The part of what is free that is used where nothing is said.
GPU_SHARE, HOST_SHARE = 0.7, 0.5
UNITS = {"": 1, "b": 1} | {
    f"{letter}{kind}": base**power
    for power, letter in enumerate("kmgt", start=1)
    for kind, base in (("b", 1000), ("ib", 1024))
}
AMOUNT = re.compile(
    r"(?P<number>\d+(\.\d*)?(e\d+)?)\s*(?P<unit>([kmgt]i?)?b|)", re.IGNORECASE
)


def memory_ended(error: BaseException) -> bool:
    """Whether an error says that memory ended; on a CPU torch's has no type of its own."""
    named = isinstance(error, torch.OutOfMemoryError | MemoryError)
    return named or "allocate memory" in str(error)


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
    """Bytes to be used: what is left of those given, or 70 % of what is free on a GPU.

    On a GPU, what torch has allocated there counts as used; a CPU's memory, which other
    programs use, too, is not ours to count, and half of what is free is taken.
    """
    if given is None:
        share = GPU_SHARE if device.type == "cuda" else HOST_SHARE
        return int(share * free_memory(device))
    used = _current("allocated_bytes", device) if device.type == "cuda" else 0
    return max(0, given - used)


def basis_room(device: torch.device, budget: int, vector: int) -> int:
    """Bytes for a basis of vectors of so many bytes each."""
    share = BASIS_SHARE * budget
    if device.type == "cuda":
        share = min(max(share, BASIS_VECTORS * vector), BASIS_MOST * budget)
    return int(share)


def graph_room(device: torch.device, budget: int, vector: int) -> float:
    """Bytes for kept graphs, beside such a basis and what products work with."""
    room = KEPT_SHARE * budget
    if device.type == "cuda":
        room -= basis_room(device, budget, vector) - BASIS_SHARE * budget
        room -= max(0.0, WORK_VECTORS * vector - WORK_SHARE * budget)
    return max(0.0, room)


def bytes_of(amount: int | float | str | None) -> int | None:
    """An amount of memory in bytes: a number, or words such as "12.5GiB".

    >>> bytes_of("1.5GiB"), bytes_of("2 MB"), bytes_of(4096)
    (1610612736, 2000000, 4096)
    """
    if amount is None:
        return None
    found = AMOUNT.fullmatch(str(amount).strip())
    if isinstance(amount, bool) or found is None:
        raise OptionError(
            f"memory= is {amount!r}: give bytes, or words such as '12GiB' or '800MB'."
        )
    return int(float(found["number"]) * UNITS[found["unit"].lower()])


def in_words(tensors: Mapping[str, Tensor]) -> str:
    """What tensors take, in gibibytes."""
    return f"{sum(tensor.nbytes for tensor in tensors.values()) / 2**30:.3g} GiB"


def empty_cache(device: torch.device) -> None:
    """Give back what torch holds on a GPU without using it."""
    if device.type == "cuda":
        # Refused after some failures; then there is nothing to be gained.
        with suppress(RuntimeError):
            torch.cuda.empty_cache()


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


class Notes(ABC):
    """Keeps something in place of tensors that autograd would save."""

    @abstractmethod
    def pack(self, tensor: Tensor) -> Any:
        """What is kept: the tensor itself, or what stands for it."""

    @abstractmethod
    def unpack(self, kept: Any) -> Tensor:
        """The tensor."""


class SavedBytes:
    """Counts the bytes that autograd saves for later while the context is open.

    But for what is saved inside of `torch.func`, which knows no hooks.

    Args:
        notes: may keep something smaller in place of a tensor, and has the say then.
    """

    def __init__(self, notes: Notes | None = None) -> None:
        self._notes = notes
        self._storages: dict[int, int] = {}
        self._hooks = torch.autograd.graph.saved_tensors_hooks(self._pack, self._unpack)
        self._forbid: Any = torch.autograd.graph.disable_saved_tensors_hooks

    @property
    def total(self) -> int:
        """Bytes over all distinct storages."""
        return sum(self._storages.values())

    def _pack(self, tensor: Tensor) -> tuple[Any, int | None]:
        note = tensor if self._notes is None else self._notes.pack(tensor)
        if note is not tensor:
            return note, None
        # Tensors of torch.func have no memory of their own.
        with suppress(RuntimeError):
            storage = tensor.untyped_storage()
            self._storages[storage.data_ptr()] = storage.nbytes()
        # Detached: a hook that keeps an output itself would make a reference cycle.
        return tensor.detach(), tensor._version

    def _unpack(self, saved: tuple[Any, int | None]) -> Tensor:
        tensor, version = saved
        if version is None and self._notes is not None:
            return self._notes.unpack(tensor)
        # torch makes this check itself only where there are no hooks.
        if tensor._version != version:
            raise RuntimeError(
                "a saved tensor has been modified by an inplace operation"
            )
        return tensor

    @contextmanager
    def _aside(self, message: str) -> Iterator[None]:
        """What torch.func calls, which would refuse our hooks: they are off inside."""
        self.__exit__()
        try:
            with self._forbid(message):
                yield
        finally:
            self.__enter__()

    def __enter__(self) -> SavedBytes:
        torch.autograd.graph.disable_saved_tensors_hooks = self._aside
        self._hooks.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._hooks.__exit__(*error)
        torch.autograd.graph.disable_saved_tensors_hooks = self._forbid


def kept_bytes(
    device: torch.device, notes: Notes | None = None
) -> AllocatedBytes | SavedBytes:
    """Counts what is kept for later; hooks on saved tensors would slow a GPU down."""
    return AllocatedBytes(device) if device.type == "cuda" else SavedBytes(notes)
