"""What is asked of a model once, before its numbers are trusted.

Autograd's derivatives must be those of the loss. They are looked at in float64 where the
model runs in it, on four samples at a time where batches can be cut, at a point beside
the given one (`differences.moved`). That every parameter is one that we can replace is
seen in the first pass over the data: see `Network.watched`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor, nn

from flatgauge.blame import Calls
from flatgauge.data import Batch, cut_length, map_batch
from flatgauge.differences import directions, examine, moved
from flatgauge.errors import FlatgaugeError, ModelError
from flatgauge.isolation import check_private
from flatgauge.kernels.convolution import OwnConvolutions
from flatgauge.kernels.layer_norm import OwnLayerNorms
from flatgauge.losses import Loss
from flatgauge.memory import free_memory
from flatgauge.nested import concatenated, tensors_in
from flatgauge.network import Network
from flatgauge.quotients import Verdict
from flatgauge.vectors import Params, fetched, size, unused_in

# Samples are taken from so many places of the data, in these sets.
PLACES = 11
SETS = ((0, 5, 10), (8, 2, 6, 4), (3, 7, 1, 9))
GOLDEN = 0.618
MOST_GRADIENTS, LEAST_GRADIENTS = 24, 5
# What a bench holds at a time: its network, points, directions, gradients and products.
VECTORS = 12
# How far the point is moved, in units of the usual way: see `differences.moved`.
SHARES = (1.0, 1e-4)
CHECKED, AS_GIVEN, UNDECIDED = "checked", "as given", "undecided"
INDEPENDENT = "independent"


@dataclass(frozen=True)
class Bench:
    """A small problem with a model's derivatives: a network, a loss, few samples.

    Attributes:
        network: a private network, whose parameters are at `point`.
        loss: the objective's loss.
        given: the samples, as they came.
        point: beside the objective's own.
    """

    network: Network
    loss: Loss
    given: Batch
    point: Params

    @cached_property
    def _samples(self) -> Batch:
        dtype = self.network.dtype
        return map_batch(
            lambda t: t.to(dtype) if t.is_floating_point() else t, self.given
        )

    def with_samples(self, samples: Batch) -> Bench:
        """The same with other samples."""
        return replace(self, given=samples)

    def runs(self) -> bool:
        """Whether its loss can be computed, and is finite."""
        try:
            value, _ = self.total(self.point)
        except (FlatgaugeError, RuntimeError):
            return False
        return bool(torch.isfinite(value))

    def total(self, params: Params) -> tuple[Tensor, float]:
        """The loss, and the size of the numbers that it was computed from."""
        # The derivatives to be judged are those that products are made of.
        own = (OwnConvolutions(), OwnLayerNorms(), self.network.recomputing())
        with own[0], own[1], own[2]:
            outputs, targets = self.network.evaluate(params, self._samples)
        value, _ = self.loss.total(outputs, targets)
        found = [t.detach() for t in tensors_in(outputs) if t.is_floating_point()]
        reaches = [t.abs().max() * len(t) for t in found if t.ndim and t.numel()]
        sizes = [one.double().reshape(()) for one in (value.detach().abs(), *reaches)]
        return value, sum(fetched(sizes))

    def culprit(self) -> str:
        """The module whose derivatives are not its own, or where else they may come from."""
        with Calls(self.network.model) as calls:
            self.total(self.point)
        alone = "the loss" if self.network.forward is None else "forward= or the loss"
        return calls.culprit() or alone


def check_sound(
    network: Network,
    point: Params,
    loss: Loss,
    batches: Callable[[], Iterable[Batch]],
    count: int,
    model: nn.Module,
    *,
    derivatives: str,
) -> str:
    """Look at the first batch whose loss depends on the parameters, and at samples of all.

    Args:
        network: the private copy.
        point: its parameters.
        loss: of the objective.
        batches: them, in order, at every call.
        count: their number.
        model: the user's own, whose parameters the loss must not read.
        derivatives: "as given" leaves autograd's alone.

    Returns:
        "checked", "undecided" or "as given"; "independent" of a loss that does not
        depend on the parameters.

    Raises:
        ModelError: for a loss of the user's own parameters, and derivatives that are not
            those of the loss.
    """
    leaves = {name: tensor.detach().requires_grad_() for name, tensor in point.items()}
    for batch in batches():
        with network.recomputing():
            outputs, targets = network.evaluate(leaves, batch)
        total = loss.sum(outputs, targets)
        check_private(total, model)
        if len(unused_in(total, leaves)) < len(leaves):
            break
    else:
        return INDEPENDENT
    if derivatives == AS_GIVEN:
        return AS_GIVEN
    few = few_of(batches(), count) or _cuts(batch)
    # What a user's code warns of in a pass, it said in those before.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = bench(network, point, loss, [*few, batch])
        if found is None:
            return UNDECIDED
        others = [one for one in few if one is not found.given]
        return _check_derivatives(found, others)


def most_certain(found: list[str]) -> str:
    """What several processes found out, each by its own data, in one word."""
    for one in (AS_GIVEN, CHECKED, UNDECIDED):
        if one in found:
            return one
    raise ModelError(
        "the loss does not depend on any of the chosen parameters: check params=, and "
        "that forward= uses the model that it is given."
    )


def _check_derivatives(first: Bench, others: list[Batch]) -> str:
    """Refuse a model whose backward is not the derivative of its forward.

    At most 24 gradients, on four samples at a time: see `differences.examine`.

    Returns:
        "checked", or "undecided" where rounding and kinks hide the answer, the samples
        have no slope, or memory does not suffice.

    Raises:
        ModelError: naming the module where it can be found.
    """
    agrees, left = False, MOST_GRADIENTS
    along: tuple[Params, Params] | None = None
    for one in (first, *(first.with_samples(samples) for samples in others)):
        if left < LEAST_GRADIENTS or not (one is first or one.runs()):
            break
        try:
            along = along or directions(first.point)
            found = examine(one.total, one.point, left, along)
        except torch.OutOfMemoryError:
            break
        left -= found.gradients
        agrees |= found.verdict is Verdict.AGREES
        if found.verdict is Verdict.DIFFERS:
            raise ModelError(
                f"autograd's derivatives are not those of the loss ({found.words}, because "
                f"of {one.culprit()}): do without the custom backward, gradient hook, "
                "straight-through estimator or detach() that changes them, turn activation "
                f'checkpointing off, or pass derivatives="{AS_GIVEN}" to take autograd\'s '
                "word."
            )
    return CHECKED if agrees else UNDECIDED


def bench(
    network: Network, point: Params, loss: Loss, candidates: list[Batch]
) -> Bench | None:
    """The first of the benches that runs: in float64, on few samples, moved the usual way.

    Else in the model's own precision, on other samples, or moved hardly at all, as for
    roots and logarithms of parameters; None where none of these runs or has the room.
    """
    for dtype in dict.fromkeys((torch.float64, network.dtype)):
        needed = VECTORS * size(point) * torch.finfo(dtype).bits // 8
        if needed > free_memory(network.device):
            continue
        try:
            twin = network.with_model(network.model, list(point), dtype=dtype)
        except (FlatgaugeError, RuntimeError):
            continue
        own = dict(twin.model.named_parameters())
        given = {name: tensor.detach().to(dtype) for name, tensor in point.items()}
        for samples in candidates:
            for share in SHARES:
                found = Bench(twin, loss, samples, moved(given, share))
                for name, tensor in found.point.items():
                    own[name].data.copy_(tensor)
                if found.runs():
                    return found
    return None


def few_of(batches: Iterable[Batch], count: int) -> list[Batch]:
    """Sets of few samples from all over the data: other batches may take other paths.

    None where samples of several batches cannot be put together.

    Args:
        batches: all of them, in order.
        count: their number.
    """
    taken: dict[int, Batch] = {}
    origins: dict[int, tuple[int, int]] = {}
    for index, batch in enumerate(batches):
        for place in (p for p in range(PLACES) if _batch_of(p, count) == index):
            length = cut_length(batch)
            if not length:
                return []
            row = round(_share_of(place) * (length - 1))
            # Copies: a view would keep the whole batch.
            taken[place] = map_batch(lambda t, r=row: t[r : r + 1].clone(), batch)
            origins[place] = (index, row)
    try:
        return [_together([taken[p] for p in places]) for places in _sets(origins)]
    except (RuntimeError, TypeError, ValueError, KeyError):
        return []


def _batch_of(place: int, count: int) -> int:
    return round(place * (count - 1) / (PLACES - 1))


def _share_of(place: int) -> float:
    """Where in its batch: the first, the last, and others in between."""
    return 1.0 if place == PLACES - 1 else place * GOLDEN % 1


def _together(samples: list[Batch]) -> Batch:
    parts = [
        concatenated([getattr(one, part) for one in samples])
        for part in ("whole", "inputs", "targets")
    ]
    return Batch(0, *parts)


def _cuts(batch: Batch) -> list[Batch]:
    """The same of one batch; nothing where it cannot be cut."""
    length = cut_length(batch)
    if not length:
        return []
    rows = {
        place: round(place * (length - 1) / (PLACES - 1)) for place in range(PLACES)
    }
    chosen = [[rows[place] for place in places] for places in _sets(rows)]
    return [map_batch(lambda t, own=own: t[own], batch) for own in chosen]


def _sets(origins: Mapping[int, Hashable]) -> list[list[int]]:
    """The places of each set, those with the same sample once.

    The first set has its first sample twice, so that what depends on how often a value
    occurs is seen. Sets of samples that were all met before are left out.

    Args:
        origins: which sample is at each place.
    """
    met: set[Hashable] = set()
    found: list[list[int]] = []
    for places in SETS:
        own = {origins[place]: place for place in places}
        if own.keys() - met:
            found.append(list(own.values()))
        met |= own.keys()
    found[0].append(found[0][0])
    return found
