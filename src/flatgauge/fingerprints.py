"""Fingerprints: of data, whatever their batches and order, and of parameters."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from flatgauge.data import Batch, leading_size
from flatgauge.memo import once, once_per_network
from flatgauge.nested import tensors_in
from flatgauge.noise import mixed
from flatgauge.objective import Objective
from flatgauge.shards import joined

# Numbers that are mixed at a time: their copies must stay small beside a batch.
AT_ONCE = 1 << 22
# Numbers of a parameter that are hashed together.
ROW = 1 << 12
BITS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@once
def data_fingerprint(objective: Objective) -> str:
    """16 hexadecimal digits that change when a sample does, computed on the device.

    Every sample is hashed by itself, and the hashes are added up modulo 2⁶⁴. Floating
    numbers count as float32, so that data of either precision are the same data.
    """
    total = objective.sum(_digest)
    return f"{int(total) % (1 << 64):016x}"


@once_per_network
def parameters_fingerprint(objective: Objective) -> str:
    """16 hexadecimal digits that change when a name, a shape or any bit does."""
    weights = _weights(ROW, objective.device)
    names: list[str] = []
    sums: list[Tensor] = []
    for name, tensor in objective.parameters.items():
        whole = joined(tensor).detach()
        real = torch.view_as_real(whole) if whole.is_complex() else whole
        bits = real.contiguous().view(-1).view(BITS[real.element_size()])
        full = bits.numel() // ROW * ROW
        rows = [bits[:full].view(-1, ROW)] if full else []
        every = [_row_sums(some, weights) for some in (*rows, bits[None, full:])]
        sums.append(torch.cat(every))
        names.append(f"{name} {tuple(whole.shape)}")
    lengths = [len(one) for one in sums]
    places = mixed(torch.arange(max(lengths), device=objective.device) + 1)
    # All at once: small tensors take as many calls as large ones.
    found = mixed(torch.cat([one + places[: len(one)] for one in sums])).split(lengths)
    totals = torch.stack([one.sum() for one in found]).tolist()
    digest = hashlib.sha256()
    for name, total in zip(names, totals, strict=True):
        digest.update(f"{name} {total % (1 << 64):016x} ".encode())
    return digest.hexdigest()[:16]


def _digest(batch: Batch) -> Tensor:
    """The sum of the hashes of a batch's samples; of one where it cannot be cut."""
    samples = leading_size(batch.whole)
    found = torch.zeros(1, dtype=torch.int64)
    for place, tensor in enumerate(tensors_in(batch.whole)):
        tensor = torch.view_as_real(tensor) if tensor.is_complex() else tensor
        rows = tensor.reshape(1 if samples is None else samples, -1)
        found = mixed(found.to(rows.device) + _row_sums(rows) + place + 1)
    return found.sum()


def _row_sums(rows: Tensor, weights: Tensor | None = None) -> Tensor:
    """Σ_j w_j x_j of each row modulo 2⁶⁴, with the first of some weights."""
    count = rows.shape[1]
    own = _weights(count, rows.device) if weights is None else weights[:count]
    pieces = rows.split(max(1, AT_ONCE // max(count, 1)))
    return torch.cat([(_integers(piece) * own).sum(1) for piece in pieces])


def _weights(count: int, device: torch.device) -> Tensor:
    """Odd numbers that look random."""
    return mixed(torch.arange(count, device=device) + 1) | 1


def _integers(values: Tensor) -> Tensor:
    """The bits of floating numbers, others as they are."""
    if values.is_floating_point():
        values = values.float().view(torch.int32)
    return values.long()
