"""Batches cut into their samples."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.data import Batch, cut_length, leading_size, take
from flatgauge.errors import ModelError
from flatgauge.nested import tensors_in
from flatgauge.objective import Objective
from flatgauge.vectors import generator


def sample_length(batch: Batch) -> int:
    """The number of samples of a batch, read off its tensors."""
    length = cut_length(batch)
    if not length:
        sizes = {t.shape[0] if t.ndim else 0 for t in tensors_in(batch.whole)}
        reason = (
            "it holds objects that are no tensors"
            if leading_size(batch.whole)
            else f"its tensors have the leading sizes {sorted(sizes)}"
        )
        raise ModelError(
            f"the batch cannot be split into samples, because {reason}: give every tensor "
            "of a batch one row per sample."
        )
    return length


def take_samples(batch: Batch, rows: slice) -> Batch:
    """Some samples of a batch."""
    sample_length(batch)
    return take(batch, rows)


def first_with_several(objective: Objective) -> Batch:
    """The first batch with two samples or more: one sample would hide a wrong layout."""
    return objective.first_batch(lambda batch: sample_length(batch) > 1)


def batch_generator(seed: int, batch: Batch) -> torch.Generator:
    """For what is drawn for one batch: the same, whoever reads those before it."""
    return generator(seed + 7919 * batch.index)


def double(tensor: Tensor) -> Tensor:
    """In float64, if it is floating."""
    return tensor.double() if tensor.is_floating_point() else tensor
