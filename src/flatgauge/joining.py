"""Small batches joined into larger ones, where that changes nothing but the time.

A GPU spends its time on small batches launching kernels: ten batches of 1000 samples of
a small network took three times as long as one of 10,000.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import groupby
from typing import Any

import torch
from torch import Tensor

from flatgauge.data import Batch, Batches, made_of_tensors, tensors_in
from flatgauge.errors import FlatgaugeError
from flatgauge.losses.loss import Rows
from flatgauge.memory import SavedBytes

# Bytes that autograd saves of a batch, weights included: from there on launches hardly
# show.
ENOUGH = 2**28
# What rounding alone can change in outputs, as a share of their norm.
ROUNDING = {torch.float64: 1e-12, torch.float32: 1e-5}


def pays(device: torch.device) -> bool:
    """Whether launches show at all; a CPU is faster with what fits in its cache."""
    return device.type == "cuda"


def joined(batches: Batches, rows: Callable[[Batch], Rows]) -> list[Batch] | None:
    """Larger batches with the same rows, or None if there are none.

    Neighbours are joined whose tensors fit together along dimension 0, if all batches
    are kept on the device.

    Args:
        batches: what to join.
        rows: evaluates a batch so that its outputs can be differentiated.
    """
    given = batches.held()
    if given is None:
        return None
    with SavedBytes() as saved:
        rows(given[0])
    found: list[Batch] = []
    for group in _groups(given, max(1, ENOUGH // max(saved.total, 1))):
        wholes = [batch.whole for batch in group]
        whole = _concatenated(wholes) if len(group) > 1 else wholes[0]
        found.append(Batch(len(found), whole, *batches.split(whole, len(found))))
        if len(group) > 1 and not _is_same(found[-1], group, rows):
            return None
    return found if len(found) < len(given) else None


def _is_same(whole: Batch, parts: list[Batch], rows: Callable[[Batch], Rows]) -> bool:
    try:
        return _same(rows(whole), [rows(part) for part in parts])
    except (FlatgaugeError, RuntimeError):
        # A model may insist on the size of its batches.
        return False


def _same(whole: Rows, parts: list[Rows]) -> bool:
    """Whether a joined batch gives the rows of its parts, up to rounding."""
    targets = torch.cat([part.targets for part in parts])
    outputs = torch.cat([part.outputs for part in parts])
    if whole.outputs.shape != outputs.shape or whole.targets.shape != targets.shape:
        return False
    distance = (whole.outputs - outputs).norm()
    allowed = ROUNDING[outputs.dtype] * outputs.norm()
    return bool((distance <= allowed) & (whole.targets == targets).all())


def _groups(batches: list[Batch], most: int) -> Iterator[list[Batch]]:
    for key, group in groupby(batches, key=lambda batch: _signature(batch.whole)):
        alike = list(group)
        step = 1 if key is None else most
        for start in range(0, len(alike), step):
            yield alike[start : start + step]


def _signature(whole: Any) -> Any:
    """Equal for batches that can be joined; None for those that cannot."""
    tensors = tensors_in(whole)
    if not made_of_tensors(whole) or any(tensor.ndim == 0 for tensor in tensors):
        return None
    return _structure(whole), [(t.shape[1:], t.dtype) for t in tensors]


def _structure(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _structure(item) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_structure(item) for item in value]
    return type(value)


def _concatenated(values: list[Any]) -> Any:
    first = values[0]
    if isinstance(first, Tensor):
        return torch.cat(values)
    if isinstance(first, Mapping):
        return {key: _concatenated([v[key] for v in values]) for key in first}
    if first is None:
        return None
    items = [_concatenated(list(parts)) for parts in zip(*values, strict=True)]
    return type(first)(*items) if hasattr(first, "_fields") else type(first)(items)
