"""Whether the samples of a batch influence each other inside the network."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from flatgauge.data import Batch, few_samples, leading_size, map_batch, samples_in, take
from flatgauge.errors import FlatgaugeError
from flatgauge.losses import CallableLoss, Loss, RowLoss
from flatgauge.nested import row_layout, tensors_in
from flatgauge.units.likeness import SUM_TOLERANCE, slack_of
from flatgauge.units.samples import odd_cut
from flatgauge.vectors import Params, fetched, gaussian, generator, root_mean_squares

# The relative change of outputs that is rounding when their batch has another size, for
# which kernels add up in another order: about a hundred units of float32. In float64 it
# may be more units, since nothing real is that small.
RESIZED_TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-5}
# A change that rounding never makes; what lies between the two is looked at again in a
# batch of the same size.
REAL_CHANGE = {torch.float64: 1e-6, torch.float32: 1e-2}
# Units in the last place of the largest output that a small one may carry, since a
# network's last sums may be over numbers of that size.
ROW_ROUNDINGS = 1e3
# Less than any number that is computed with.
TINY = 1e-300
# Samples that another point is looked at with, and how far it lies, relatively.
MOVED_SAMPLES, MOVED = 16, 0.05

Evaluate = Callable[[Params, Batch], tuple[Any, Any]]


class CouplingCheck:
    """Evaluates every batch in two parts, and compares the outputs.

    One batch is looked at near the point, too: a gate that is 0 hides what is behind it,
    but not from derivatives.

    Args:
        evaluate: outputs and targets of a batch at some parameters.
        point: the parameters.
        loss: whose sums are compared where outputs cannot be told apart by samples.
        dtype: the floating type of the parameters.
    """

    def __init__(
        self, evaluate: Evaluate, point: Params, loss: Loss, dtype: torch.dtype
    ):
        self.evaluate = evaluate
        self.point = point
        self.loss = loss
        self.dtype = dtype
        self.coupled = False
        self._moved = False

    def look(self, batch: Batch, outputs: Any, targets: Any) -> None:
        """Take note of one batch and its outputs."""
        if self.coupled:
            return
        count = samples_in(batch)
        if count is None:
            # Its rows are what a named loss says, or one value each; else it is one unit.
            self.coupled = not (
                isinstance(self.loss, RowLoss)
                or (
                    isinstance(self.loss, CallableLoss)
                    and self.loss.value(outputs, targets).ndim
                )
            )
            return
        if count < 2:
            return
        self.coupled = self._differs(self.point, batch, (outputs, targets))
        if not (self.coupled or self._moved):
            self._moved = True
            few = few_samples(batch, MOVED_SAMPLES)
            near = _near(self.point)
            try:
                both = self.evaluate(near, few)
            except FlatgaugeError:
                return
            if all(bool(t.isfinite().all()) for t in _floating(both[0])):
                self.coupled = self._differs(near, few, both)

    def _differs(self, point: Params, batch: Batch, both: tuple[Any, Any]) -> bool:
        """Whether the batch in two parts gives other outputs."""
        count = samples_in(batch)
        assert count is not None
        cut = odd_cut(count)
        try:
            parts = [
                self.evaluate(point, take(batch, rows))
                for rows in (slice(0, cut), slice(cut, None))
            ]
            if not _by_samples(both[0], [p[0] for p in parts], (count, cut)):
                return self._sums_differ(both, parts)
            if any(row_layout(both[0]) != row_layout(part[0]) for part in parts):
                # As of scores of every sample against every other.
                return True
        except FlatgaugeError:
            # A model may insist on the size of its batches.
            return True
        joined = [
            torch.cat(pair)
            for pair in zip(*(_floating(part[0]) for part in parts), strict=True)
        ]
        change = _change(_floating(both[0]), joined)
        if change <= RESIZED_TOLERANCE[self.dtype]:
            return False
        if not change <= REAL_CHANGE[self.dtype]:
            return True
        # The same sizes again, so that nothing but the others' content can tell.
        return any(
            self._others_tell(point, batch, both, own)
            for own in (slice(0, cut), slice(cut, None))
        )

    def _others_tell(
        self, point: Params, batch: Batch, both: tuple[Any, Any], own: slice
    ) -> bool:
        """Whether outputs change where all other samples become one of these."""

        def repeated(t: Tensor) -> Tensor:
            other = t[own][:1].expand_as(t).clone()
            other[own] = t[own]
            return other

        found = _floating(self.evaluate(point, map_batch(repeated, batch))[0])
        change = _change([t[own] for t in _floating(both[0])], [t[own] for t in found])
        return not change <= RESIZED_TOLERANCE[self.dtype]

    def _sums_differ(self, both: tuple[Any, Any], parts: list[tuple[Any, Any]]) -> bool:
        whole, *some = (
            float(self.loss.total(*one)[0].detach()) for one in (both, *parts)
        )
        numbers = [abs(one) for one in (whole, *some)]
        count = self.loss.total(*both)[1]
        allowed = SUM_TOLERANCE[self.dtype] * max(numbers)
        allowed += slack_of(both[0], self.dtype) * count
        return not abs(whole - sum(some)) <= allowed


def _by_samples(whole: Any, parts: list[Any], sizes: tuple[int, int]) -> bool:
    count, cut = sizes
    found = [leading_size(one) for one in (whole, *parts)]
    return found == [count, cut, count - cut]


def _floating(outputs: Any) -> list[Tensor]:
    return [t.detach() for t in tensors_in(outputs) if t.is_floating_point()]


def _change(whole: list[Tensor], other: list[Tensor]) -> float:
    """The largest change of an output, relative to the largest finite one, or its row's.

    Beside a large row, changes of the others would not be seen. Less than a few roundings
    of the largest is nothing.
    """
    changes = []
    for one, two in zip(whole, other, strict=True):
        if not one.numel():
            continue
        same = (one == two) | (one.isnan() & two.isnan())
        # By rows, in float64, where the smallest divisor is more than 0.
        moved, sizes = (
            t.reshape(len(t), -1).amax(1).double()
            for t in ((one - two).abs().masked_fill(same, 0.0), _finite(one))
        )
        reach = sizes.max()
        few = ROW_ROUNDINGS * torch.finfo(one.dtype).eps * reach
        beyond = (moved - few).clamp_min(0) / sizes.clamp_min(TINY)
        changes += [moved.max() / reach.clamp_min(TINY), beyond.max()]
    known = fetched(changes)
    return math.inf if any(map(math.isnan, known)) else max(known, default=0.0)


def _finite(outputs: Tensor) -> Tensor:
    return outputs.abs().nan_to_num(0.0, 0.0, 0.0)


def _near(point: Params) -> Params:
    """A point where nothing is 0 by chance."""
    noise, sizes = gaussian(point, generator(0)), root_mean_squares(point)
    return {
        name: tensor + MOVED * noise[name] * (sizes[name] or 1.0)
        for name, tensor in point.items()
    }
