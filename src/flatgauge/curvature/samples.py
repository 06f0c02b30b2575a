"""Batches cut into their samples, and into pieces where one does not fit as a whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import torch
from torch import Tensor

from flatgauge.curvature.agreement import working_rounding
from flatgauge.data import Batch, cut_length, leading_size, samples_in, take
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


def pieces(batch: Batch, cuts: int) -> Iterator[Batch]:
    """So many parts of a batch, as far as it has samples for them."""
    if cuts == 1:
        yield batch
        return
    count = sample_length(batch)
    edges = [count * i // cuts for i in range(cuts + 1)]
    for start, end in itertools.pairwise(edges):
        if end > start:
            yield take_samples(batch, slice(start, end))


def most_cuts(objective: Objective) -> int:
    """The samples of the largest batch; 1 where the losses of pieces do not add up."""
    if objective.coupled:
        return 1
    most = 1
    with objective.isolated():
        for batch in objective.batches():
            if not _adds_up(objective, batch):
                return 1
            most = max(most, sample_length(batch))
    return most


def _adds_up(objective: Objective, batch: Batch) -> bool:
    """Whether the losses of the halves of a batch are that of the whole."""
    length = samples_in(batch)
    if length is None:
        return False
    if length < 2:
        return length == 1
    halves = slice(0, length // 2), slice(length // 2, None)
    whole, one, other = (
        float(objective.batch_total(objective.parameters, part).detach())
        for part in (batch, *(take_samples(batch, half) for half in halves))
    )
    allowed = working_rounding(objective)
    return abs(one + other - whole) <= allowed * max(abs(one) + abs(other), abs(whole))


def first_with_several(objective: Objective) -> Batch:
    """The first batch with two samples or more: one sample would hide a wrong layout."""
    return objective.first_batch(lambda batch: sample_length(batch) > 1)


def batch_generator(seed: int, batch: Batch) -> torch.Generator:
    """For what is drawn for one batch: the same, whoever reads those before it."""
    return generator(seed + 7919 * batch.index)


def double(tensor: Tensor) -> Tensor:
    """In float64, if it is floating."""
    return tensor.double() if tensor.is_floating_point() else tensor
