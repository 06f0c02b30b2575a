"""Small batches joined into larger ones, for products that do not see the difference.

A GPU spends its time on small batches launching kernels, and recording those of every
batch takes longer than what follows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import groupby
from typing import Any

import torch

from flatgauge.curvature.agreement import SAME_PRODUCT, difference
from flatgauge.curvature.routes import Route
from flatgauge.curvature.samples import double, take_samples
from flatgauge.data import Batch, map_batch
from flatgauge.errors import FlatgaugeError
from flatgauge.losses import RowLoss
from flatgauge.memory import SavedBytes
from flatgauge.nested import concatenated, made_of_tensors, row_layout, tensors_in
from flatgauge.objective import Objective
from flatgauge.vectors import add, gaussian, generator, norm

# Bytes that autograd saves of a batch, weights included: from there on launches hardly
# show.
ENOUGH = 2**28
# The part of a memory budget that a copy of the data may fill.
DATA_SHARE = 8
CHECKED_SAMPLES = 16
# The relative difference of two values of the loss that is rounding: about a hundred units
# in the last place of float32, and a tenth of one of TF32, since means average them out.
SAME_VALUE = {"ieee": 1e-5, "tf32": 1e-4}


def joined(objective: Objective, truth: Route, budget: int) -> Objective:
    """The same objective in larger batches, or as it is where products could differ.

    Batches that follow each other are joined along dimension 0 if their tensors have the
    same shapes otherwise. The first two of every such shape decide: on some of their
    samples the product with a random vector must be the same in float64. At last the
    value must be the same on all the data. A copy of the data may fill a part of the
    budget.
    """
    named, network = isinstance(objective.loss, RowLoss), objective.network
    plain = named and network.forward is None and network.mode == "eval"
    several = objective.batch_count > 1 and not objective.coupled
    if not (plain and several):
        return objective
    with objective.isolated():
        given, room = objective.held_batches(), budget // DATA_SHARE
        if given is None or sum(map(bytes_of_batch, given)) > room:
            return objective
        try:
            return _tried(objective, truth, given, min(ENOUGH, room))
        except (FlatgaugeError, RuntimeError):
            # A model may insist on the size of its batches.
            return objective


def _tried(
    objective: Objective, truth: Route, given: list[Batch], enough: int
) -> Objective:
    groups: list[list[Batch]] = []
    for key, run in groupby(given, key=_signature):
        alike, most = list(run), 0.0
        if key is not None and len(alike) > 1:
            most = _most(objective, alike[0], enough)
        some = list(_groups(alike, most))
        pairs = [group[:2] for group in some if len(group) > 1]
        if pairs and not _is_same(objective, truth, pairs[0]):
            return objective
        groups += some
    if len(groups) == len(given):
        return objective
    found = objective.in_batches([_joined(i, g) for i, g in enumerate(groups)])
    totals = [
        found.batch_total(found.parameters, batch).detach() for batch in found.batches()
    ]
    value = float(torch.stack(totals).double().sum()) / objective.sample_count
    allowed = SAME_VALUE[objective.precision]
    return (
        found if math.isclose(value, objective.value(), rel_tol=allowed) else objective
    )


def _most(objective: Objective, first: Batch, enough: int) -> float:
    """The size of batches that are large enough, in bytes of their tensors."""
    # A copy: autograd would be seen to save all that a view is a part of.
    own = map_batch(torch.clone, first)
    with SavedBytes() as saved:
        objective.batch_total(objective.leaves(), own)
    return enough / max(saved.total, 1) * bytes_of_batch(first)


def _is_same(objective: Objective, truth: Route, pair: list[Batch]) -> bool:
    """Whether the products of two batches add up to that of the joined one."""
    exact = objective.in_double()
    some = slice(0, CHECKED_SAMPLES)
    few = [map_batch(double, take_samples(one, some)) for one in pair]
    vector = gaussian(exact.parameters, generator(0))
    together, one, other = (
        truth.prepare(exact, batch)(vector) for batch in (_joined(0, few), *few)
    )
    right = add(one, other)
    # Where there is no curvature, there is nothing to tell them by.
    return float(norm(right)) > 0 and difference(together, right) <= SAME_PRODUCT


def _groups(batches: list[Batch], most: float) -> Iterator[list[Batch]]:
    """Neighbours of at most `most` bytes in all, or single ones."""
    group: list[Batch] = []
    total = 0
    for batch in batches:
        total += bytes_of_batch(batch)
        if group and total > most:
            yield group
            group, total = [], bytes_of_batch(batch)
        group.append(batch)
    yield group


def bytes_of_batch(batch: Batch) -> int:
    """What its inputs and targets take."""
    return sum(t.nbytes for t in tensors_in([batch.inputs, batch.targets]))


def _signature(batch: Batch) -> Any:
    """Equal for batches that can be joined; None for those that cannot."""
    parts = (batch.inputs, batch.targets)
    if not made_of_tensors(batch.whole) or any(t.ndim == 0 for t in tensors_in(parts)):
        return None
    return row_layout(parts)


def _joined(index: int, group: list[Batch]) -> Batch:
    if len(group) == 1:
        return replace(group[0], index=index)
    inputs = concatenated([batch.inputs for batch in group])
    targets = concatenated([batch.targets for batch in group])
    return Batch(index, (inputs, targets), inputs, targets)
