"""Batches cut into pieces, where one does not fit in the memory as a whole."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from flatgauge.curvature.agreement import working_rounding
from flatgauge.curvature.samples import sample_length, take_samples
from flatgauge.data import Batch, samples_in
from flatgauge.objective import Objective


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
