"""Sums of squared per-sample gradients, for any model.

Operations that are understood (`recorder.py`) give their share from inputs and slopes;
the others, and whatever does not agree with plain differentiation of single samples on
the first batch, are differentiated sample by sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from flatgauge.curvature.recorder import Recorder
from flatgauge.curvature.samples import (
    double,
    first_with_several,
    sample_length,
    take_samples,
)
from flatgauge.curvature.slots import Pass, Passes, by_slot, grouped
from flatgauge.curvature.taps import most_entries
from flatgauge.data import Batch, map_batch
from flatgauge.errors import LossError, ModelError
from flatgauge.losses import RowLoss
from flatgauge.losses.loss import Rows
from flatgauge.memory import memory_budget
from flatgauge.objective import Objective
from flatgauge.vectors import Params, add, check_finite, scale

AGREEMENT = 1e-8
CHECKED_SAMPLES = 3
CHECKED_SLOTS = 2
# Where passes share a backward, one alone could hide a wrong layout.
CHECKED_TOGETHER = 2
# The part of the memory budget that the taps of one piece of a batch may fill, and
# what is held of each of their numbers, with the copies that are made of some.
MEMORY_SHARE = 4
COPIES = 2


@dataclass(frozen=True)
class Findings:
    """What a trial on a few samples tells about a model.

    Attributes:
        singly: the parameters to differentiate sample by sample.
        together: whether several passes may share one backward, on a GPU.
        entries: the numbers that are held of each sample while its passes run.
    """

    singly: list[str]
    together: bool
    entries: int = 0


class SquaredGradients:
    """(1/N) Σ_rows Σ_passes s (∂⟨f_row, c⟩/∂θ)², entry by entry.

    Args:
        objective: model, data, loss and the point; the loss is a named one.
        signed: whether passes may have negative signs, which are summed apart.
        findings: what is known of the model; found out once a point if None.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        signed: bool = True,
        findings: Findings | None = None,
    ):
        if not isinstance(objective.loss, RowLoss):
            raise LossError(
                f"per-sample derivatives need a loss a row, which '{objective.loss.name}' "
                "does not give: use a named loss."
            )
        self.objective = objective
        self.loss = objective.loss
        self.signed = signed
        self.findings = findings or _findings(objective)
        self._entries = self.findings.entries

    @property
    def singly(self) -> list[str]:
        """The parameters to differentiate sample by sample."""
        return self.findings.singly

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

        columns = CHECKED_TOGETHER if self.findings.together else 1

        def trial(rows: Rows) -> Iterator[Pass]:
            # Functions of the sample's own outputs: the same in any batch.
            outputs = rows.outputs.detach()
            # Not 0 where outputs are: a network's last layer may start from nothing.
            moved = [outputs + shift for shift in range(columns)]
            waves = torch.stack([one.sin() + one.cos() for one in moved], dim=2)
            ones = torch.ones_like(outputs[:, :1]).expand(-1, columns)
            passes = by_slot(rows, waves, ones)
            yield from islice(passes, CHECKED_SLOTS * columns)

        fast = self._nothing(list(point))
        self._recorded(few, trial, fast)
        every = SquaredGradients(
            self.objective, signed=self.signed, findings=Findings(list(point), False)
        )
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
        edges = [tap.output for tap in taps]
        for group in grouped(passes(rows), self._at_a_time(recorder.entries)):
            slopes = group.pull(rows.outputs, edges)
            shares = self._split(group.signs)
            weights = shares.new_zeros(len(shares), count, shares.shape[2])
            weights.index_add_(1, rows.samples, shares)
            for tap, slope in zip(taps, slopes, strict=True):
                if slope is not None and slope.shape[1] % count == 0:
                    tap.add(slope.detach(), weights)
        for tap in taps:
            found = tap.total()
            for name in found.keys() - skipped:
                total[name] += found[name]

    def _at_a_time(self, entries: int) -> int:
        """How many passes, with so many slopes each, may share a backward."""
        if not self.findings.together:
            return 1
        return max(1, most_entries(self.objective.device) // max(entries, 1))

    def _split(self, signs: Tensor) -> Tensor:
        """Weights of the positive and, where there is one, of the negative part."""
        if not self.signed:
            return signs[..., None]
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


def _findings(objective: Objective) -> Findings:
    # The rows, and with them the slots, are the loss's own.
    key = f"per sample, {objective.loss.name}"
    return objective.once(key, lambda: _try(objective))


def _try(objective: Objective) -> Findings:
    """Try a few samples in float64, where nothing wrong can hide behind rounding."""
    exact = objective.in_double()
    with exact.isolated():
        few = take_samples(first_with_several(objective), slice(0, CHECKED_SAMPLES))
        few = map_batch(double, few)
        if objective.device.type == "cuda":
            # Not every operation of a backward can be done for several passes at a time.
            with suppress(RuntimeError):
                findings = _tried(exact, few, together=True)
                if not findings.singly:
                    return findings
        return _tried(exact, few, together=False)


def _tried(objective: Objective, few: Batch, together: bool) -> Findings:
    trial = SquaredGradients(objective, findings=Findings([], together))
    wrong = trial.wrong_on(few)
    return Findings(wrong, together, trial._entries)


def samples_stand_alone(objective: Objective) -> bool:
    """Whether batches split into samples that do not influence each other."""
    try:
        SquaredGradients(objective)
    except (ModelError, LossError):
        return False
    return True


def _add_some(total: Params, shares: Params) -> Params:
    return {n: t + shares[n] if n in shares else t for n, t in total.items()}
