"""One operation of a model: its output, the parameters that it used, and the sums so far."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field

import torch
from torch import Tensor
from torch.autograd.graph import GradientEdge

from flatgauge.diagonals.taps.layout import Layout
from flatgauge.vectors import Params

# Entries of per-sample gradients held at a time: few launches on a GPU, as far as its
# memory goes; what stays in the cache of a CPU, so that squares are taken there.
CHUNK = 2**22
GPU_CHUNK = 2**28
# Bytes of a GPU's memory for each entry, so that a chunk is a small part of it.
BYTES_AN_ENTRY = 256


@dataclass
class Tap(ABC):
    """One operation.

    Attributes:
        output: where it is in the graph.
        names: the parameters that it used, by role: the names of its arguments.
        layout: where the samples are in its output.
        sums: what pulls added up to so far.
    """

    output: GradientEdge = field(init=False)
    names: dict[str, str] = field(init=False)
    layout: Layout = field(init=False)
    sums: Params = field(default_factory=dict, init=False)

    @property
    def roles(self) -> set[str]:
        """Those of its arguments that may be parameters."""
        return {"weight", "bias"}

    @property
    def entries(self) -> int:
        """Numbers that are held for all samples while their pulls run."""
        return 0

    def add(self, slopes: Tensor, weights: Tensor) -> None:
        """Add some pulls, which lead: a slope and weights for each sample."""
        for slope, own in zip(slopes, weights, strict=True):
            for role, name in self.names.items():
                share, before = self.squares(role, slope, own), self.sums.get(name)
                self.sums[name] = share if before is None else before + share

    def total(self) -> Params:
        """What all pulls added up to."""
        return self.sums

    @abstractmethod
    def sample_dims(self, ndim: int) -> Iterable[int]:
        """The dimensions of an output with so many in which samples may be."""

    @abstractmethod
    def squares(self, role: str, slope: Tensor, weights: Tensor) -> Tensor:
        """Σ_n weights_nw (gradient of sample n)² for the parameter in a role, w leading."""


def chunks(count: int, entries_each: int, device: torch.device) -> list[slice]:
    """Slices of samples that keep the entries held at a time bounded."""
    step = max(1, most_entries(device) // max(entries_each, 1))
    return [slice(start, start + step) for start in range(0, count, step)]


def most_entries(device: torch.device) -> int:
    """The numbers that may be held at a time."""
    if device.type != "cuda":
        return CHUNK
    memory = torch.cuda.get_device_properties(device).total_memory
    return min(GPU_CHUNK, memory // BYTES_AN_ENTRY)
