"""Sums of squared per-sample gradients, for any model.

Operations that are understood (`recorder.py`) give their share from inputs and slopes;
the others, and whatever does not agree with plain differentiation of single samples on
the first batch, are differentiated sample by sample.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from flatgauge.curvature.recorder import Recorder
from flatgauge.data import Batch, map_batch, tensors_in
from flatgauge.errors import LossError, ModelError
from flatgauge.losses import RowLoss
from flatgauge.losses.loss import Rows
from flatgauge.memory import memory_budget
from flatgauge.objective import Objective
from flatgauge.vectors import Params, add, check_finite, scale

AGREEMENT = 1e-8
CHECKED_SAMPLES = 3
CHECKED_SLOTS = 2
# The part of the memory budget that the taps of one piece of a batch may fill, and
# what is held of each of their numbers, with the copies that are made of some.
MEMORY_SHARE = 4
COPIES = 2


@dataclass(frozen=True)
class Pass:
    """One backward pass: a vector for each row, and a sign; at most one row a sample."""

    columns: Tensor
    signs: Tensor


Passes = Callable[[Rows], Iterator[Pass]]


class SquaredGradients:
    """(1/N) Σ_rows Σ_passes s (∂⟨f_row, c⟩/∂θ)², entry by entry.

    Args:
        objective: model, data, loss and the point; the loss is a named one.
        signed: whether passes may have negative signs, which are summed apart.
        singly: the parameters to differentiate sample by sample; those for which the
            operations' shares are wrong on a few samples, in float64, if None.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        signed: bool = True,
        singly: list[str] | None = None,
    ):
        if not isinstance(objective.loss, RowLoss):
            raise LossError(
                f"per-sample derivatives need a loss a row, which '{objective.loss.name}' "
                "does not give: use a named loss."
            )
        self.objective = objective
        self.loss = objective.loss
        self.signed = signed
        self._entries = 0
        self.singly = _found_wrong(objective, self) if singly is None else singly

    def mean(self, passes: Passes) -> Params:
        """The sum over all batches, divided by the number of rows."""
        plus, minus = self.parts(passes)
        return add(plus, minus, -1.0)

    def parts(self, passes: Passes) -> tuple[Params, Params]:
        """The same, positive and negative signs apart: the mean is their difference."""
        total = self._nothing(list(self.objective.parameters))
        with self.objective.isolated():
            for batch in self.objective.batches():
                for piece in self._pieces(batch):
                    self._recorded(piece, passes, total)
                if self.singly:
                    total = _add_some(total, self._sample_by_sample(batch, passes))
        total = scale(total, 1 / self.objective.sample_count)
        check_finite(total, "diagonal")
        plus = {name: both[0] for name, both in total.items()}
        if not self.signed:
            return plus, {name: torch.zeros_like(part) for name, part in plus.items()}
        return plus, {name: both[1] for name, both in total.items()}

    def _pieces(self, batch: Batch) -> Iterator[Batch]:
        """Parts of a batch whose taps together hold a bounded amount."""
        room = memory_budget(self.objective.device, None) // MEMORY_SHARE
        each = COPIES * self.objective.dtype.itemsize * max(self._entries, 1)
        step = max(1, room // each)
        length = sample_length(batch)
        if step >= length:
            yield batch
            return
        for start in range(0, length, step):
            yield take_samples(batch, slice(start, start + step))

    def _nothing(self, names: list[str]) -> Params:
        """Zeros for the positive part and, where there is one, for the negative."""
        point = self.objective.parameters
        kinds = 2 if self.signed else 1
        return {
            name: point[name].new_zeros(kinds, *point[name].shape) for name in names
        }

    def wrong_on(self, few: Batch) -> list[str]:
        """The parameters whose shares differ from plain differentiation."""
        point = self.objective.parameters
        self._check_independent(few)

        def trial(rows: Rows) -> Iterator[Pass]:
            # A function of the sample's own outputs: the same in any batch.
            column = rows.outputs.detach().cos() + rows.outputs.detach().sin()
            one = torch.ones_like(column[:, :1])
            yield from islice(by_slot(rows, column[:, :, None], one), CHECKED_SLOTS)

        fast = self._nothing(list(point))
        self._recorded(few, trial, fast)
        every = SquaredGradients(self.objective, signed=self.signed, singly=list(point))
        slow = every._sample_by_sample(few, trial)
        return [
            name
            for name in point
            if float((fast[name] - slow[name]).norm())
            > AGREEMENT * float(slow[name].norm())
        ]

    def _check_independent(self, few: Batch) -> None:
        """A sample's outputs must not depend on the others of its batch."""
        point = self.objective.parameters

        def outputs(samples: Batch) -> Tensor:
            found = self.objective.evaluate(point, samples)
            return self.loss.rows(*found).outputs.detach()

        together = outputs(few)
        alone = [
            outputs(take_samples(few, slice(index, index + 1)))
            for index in range(sample_length(few))
        ]
        difference = float((together - torch.cat(alone)).norm())
        if difference > AGREEMENT * float(together.norm()):
            raise ModelError(
                "the samples of a batch influence each other (BatchNorm in train mode?), "
                "so they have no gradients of their own: use mode='eval'."
            )

    def _recorded(self, batch: Batch, passes: Passes, total: Params) -> None:
        """Add the shares of the operations that are understood to `total`."""
        point = self.objective.leaves()
        with Recorder(point) as recorder:
            outputs, targets = self.objective.evaluate(point, batch)
        rows = self.loss.rows(outputs, targets)
        skipped = recorder.others.union(self.singly)
        taps = [
            tap for tap in recorder.taps if not skipped.issuperset(tap.names.values())
        ]
        self._entries = sum(tap.entries for tap in taps) // max(outputs.shape[0], 1)
        if not taps or not rows.outputs.requires_grad:
            return
        count = outputs.shape[0]
        for one in passes(rows):
            slopes = torch.autograd.grad(
                rows.outputs,
                [tap.output for tap in taps],
                one.columns,
                retain_graph=True,
                allow_unused=True,
            )
            shares = self._split(one.signs)
            weights = shares.new_zeros(count, shares.shape[1])
            weights.index_add_(0, rows.samples, shares)
            for tap, slope in zip(taps, slopes, strict=True):
                if slope is not None and slope.shape[0] % count == 0:
                    tap.add(slope.detach(), weights)
        for tap in taps:
            found = tap.total()
            for name in found.keys() - skipped:
                total[name] += found[name]

    def _split(self, signs: Tensor) -> Tensor:
        """Weights of the positive and, where there is one, of the negative part."""
        if not self.signed:
            return signs[:, None]
        return torch.stack([signs.clamp_min(0), (-signs).clamp_min(0)], dim=-1)

    def _sample_by_sample(self, batch: Batch, passes: Passes) -> Params:
        """Plain differentiation of one sample at a time."""
        point = self.objective.parameters
        total = self._nothing(self.singly)
        for index in range(sample_length(batch)):
            single = take_samples(batch, slice(index, index + 1))
            leaves = {
                name: point[name].detach().requires_grad_() for name in self.singly
            }
            outputs, targets = self.objective.evaluate({**point, **leaves}, single)
            rows = self.loss.rows(outputs, targets)
            if not rows.outputs.requires_grad:
                continue
            for one in passes(rows):
                slopes = torch.autograd.grad(
                    rows.outputs,
                    list(leaves.values()),
                    one.columns,
                    retain_graph=True,
                    allow_unused=True,
                    materialize_grads=True,
                )
                shares = self._split(one.signs).sum(0)
                for name, slope in zip(leaves, slopes, strict=True):
                    total[name] += torch.stack(
                        [part * slope.square() for part in shares]
                    )
        return total


def _found_wrong(objective: Objective, squares: SquaredGradients) -> list[str]:
    """Try a few samples in float64, where nothing wrong can hide behind rounding."""
    exact = objective.in_double()
    trial = SquaredGradients(exact, signed=squares.signed, singly=[])
    with exact.isolated():
        few = take_samples(_first_with_several(objective), slice(0, CHECKED_SAMPLES))
        found = trial.wrong_on(map_batch(_double, few))
    squares._entries = trial._entries
    return found


def _double(tensor: Tensor) -> Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


def samples_stand_alone(objective: Objective) -> bool:
    """Whether batches split into samples that do not influence each other."""
    try:
        SquaredGradients(objective)
    except (ModelError, LossError):
        return False
    return True


def by_slot(rows: Rows, columns: Tensor, signs: Tensor) -> Iterator[Pass]:
    """Passes with at most one row a sample: for each position, for each column."""
    order = torch.arange(rows.samples.numel(), device=rows.samples.device)
    first = torch.searchsorted(rows.samples, rows.samples)
    slots = order - first
    for slot in range(int(slots.max()) + 1 if slots.numel() else 0):
        here = (slots == slot).to(columns.dtype)
        for index in range(columns.shape[2]):
            yield Pass(columns[:, :, index] * here[:, None], signs[:, index] * here)


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


def _first_with_several(objective: Objective) -> Batch:
    """The first batch with two samples or more: one sample would hide a wrong layout."""
    batches = list(islice(objective.batches(), 1))
    if sample_length(batches[0]) > 1:
        return batches[0]
    for batch in objective.batches():
        if sample_length(batch) > 1:
            return batch
    return batches[0]


def _add_some(total: Params, shares: Params) -> Params:
    return {n: t + shares[n] if n in shares else t for n, t in total.items()}
