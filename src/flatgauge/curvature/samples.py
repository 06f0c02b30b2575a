"""Batches cut into their samples."""

from __future__ import annotations

from torch import Tensor

from flatgauge.data import Batch, map_batch, tensors_in
from flatgauge.errors import ModelError
from flatgauge.objective import Objective


def sample_length(batch: Batch) -> int:
    """The number of samples of a batch, read off its tensors."""
    tensors = tensors_in(batch.whole)
    lengths = {tensor.shape[0] if tensor.ndim else 0 for tensor in tensors}
    if len(lengths) != 1 or 0 in lengths:
        raise ModelError(
            "the batch cannot be split into samples, because its tensors have the leading "
            f"sizes {sorted(lengths)}: give every tensor of a batch one row a sample."
        )
    return lengths.pop()


def take_samples(batch: Batch, rows: slice) -> Batch:
    """Some samples of a batch."""
    sample_length(batch)
    return map_batch(lambda t: t[rows], batch)


def first_with_several(objective: Objective) -> Batch:
    """The first batch with two samples or more: one sample would hide a wrong layout."""
    first = objective.first_batch()
    if sample_length(first) > 1:
        return first
    several = (one for one in objective.batches() if sample_length(one) > 1)
    return next(several, first)


def double(tensor: Tensor) -> Tensor:
    """In float64, if it is floating."""
    return tensor.double() if tensor.is_floating_point() else tensor
