"""What one batch adds to sums of squared per-sample gradients, by operations or singly."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.curvature.attribution import Attribution, attribute, is_near
from flatgauge.curvature.recorder import Recorder
from flatgauge.curvature.samples import sample_length, take_samples
from flatgauge.curvature.slots import Passes, grouped
from flatgauge.curvature.taps import Tap, most_entries
from flatgauge.data import Batch
from flatgauge.errors import ModelError
from flatgauge.losses import RowLoss
from flatgauge.losses.loss import Rows
from flatgauge.objective import Objective
from flatgauge.vectors import Params

# By how much the outputs of a sample alone may differ from those in its batch.
APART = {torch.float64: 1e-8, torch.float32: 1e-3}
APART_TF32 = 0.05
COUPLED = (
    "the samples of a batch influence each other (BatchNorm in train mode?), so they have "
    "no gradients of their own: use mode='eval'."
)


@dataclass(frozen=True)
class Recorded:
    """The shares of understood operations in one batch.

    Attributes:
        shares: by parameter, for those that are explained.
        attribution: what was seen of the batch.
        entries: the numbers that are held of each sample while its passes run.
    """

    shares: Params
    attribution: Attribution
    entries: int = 0


@dataclass(frozen=True)
class Shares:
    """Σ_rows Σ_passes s (∂⟨f_row, c⟩/∂θ)² over one batch, entry by entry.

    With `signed`, positive and negative signs are summed apart and lead the result.
    Several passes share one backward where `together` is true.
    """

    objective: Objective
    loss: RowLoss
    signed: bool
    together: bool

    def nothing(self, names: Collection[str]) -> Params:
        """Zeros for the positive part and, where there is one, for the negative."""
        point = self.objective.parameters
        kinds = 2 if self.signed else 1
        return {
            name: point[name].new_zeros(kinds, *point[name].shape) for name in names
        }

    def recorded(
        self, batch: Batch, passes: Passes, singly: Collection[str]
    ) -> Recorded:
        """From the inputs and slopes of the operations that are understood.

        Each parameter is looked at on all samples of the batch; those in `singly` are
        left out.
        """
        point = self.objective.leaves()
        with Recorder(point) as recorder:
            outputs, targets = self.objective.evaluate(point, batch)
        rows = self.loss.rows(outputs, targets)
        if not rows.outputs.requires_grad:
            return Recorded({}, Attribution(set(), set(), {}))
        skipped = recorder.others.union(singly)
        taps = [
            tap for tap in recorder.taps if not skipped.issuperset(tap.names.values())
        ]
        count = sample_length(batch)
        seen = attribute(self.objective, rows, taps, point, count)
        trusted = seen.explained - skipped
        taps = [tap for tap in taps if not trusted.isdisjoint(tap.names.values())]
        self._add_up(rows, passes, taps, recorder.entries, count)
        totals = [tap.total() for tap in taps]
        shares = {n: t for found in totals for n, t in found.items() if n in trusted}
        held = sum(tap.entries for tap in taps) // count
        return Recorded({**self.nothing(trusted - shares.keys()), **shares}, seen, held)

    def singly(self, batch: Batch, passes: Passes, names: Collection[str]) -> Params:
        """By plain differentiation of one sample at a time.

        Raises:
            ModelError: if a sample alone has other outputs than in its batch.
        """
        point = self.objective.parameters
        total = self.nothing(names)
        for index in range(sample_length(batch)):
            single = take_samples(batch, slice(index, index + 1))
            leaves = {name: point[name].detach().requires_grad_() for name in names}
            rows = self.rows({**point, **leaves}, single)
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

    def rows(self, params: Params, batch: Batch) -> Rows:
        """The rows of a batch at some parameters."""
        return self.loss.rows(*self.objective.evaluate(params, batch))

    def check_independent(self, batch: Batch) -> None:
        """A sample's outputs must not depend on the others of its batch.

        Raises:
            ModelError: if they do.
        """
        point = self.objective.parameters
        together = self.rows(point, batch).outputs.detach()
        alone = [
            self.rows(point, take_samples(batch, slice(i, i + 1))).outputs.detach()
            for i in range(sample_length(batch))
        ]
        apart = torch.cat(alone)
        allowed = APART[self.objective.dtype]
        if self.objective.precision == "tf32":
            allowed = max(allowed, APART_TF32)
        if together.shape == apart.shape:
            # Row by row: beside a large one, the others would not be seen.
            size = together.abs().amax(1, keepdim=True)
            if is_near(apart, together, allowed, size):
                return
        raise ModelError(COUPLED)

    def _add_up(
        self, rows: Rows, passes: Passes, taps: list[Tap], entries: int, count: int
    ) -> None:
        """Add all passes to the sums of the taps."""
        if not taps:
            return
        edges = [tap.output for tap in taps]
        for group in grouped(passes(rows), self._at_a_time(entries)):
            slopes = group.pull(rows.outputs, edges)
            shares = self._split(group.signs)
            weights = shares.new_zeros(len(shares), count, shares.shape[2])
            weights.index_add_(1, rows.samples, shares)
            for tap, slope in zip(taps, slopes, strict=True):
                if slope is not None:
                    tap.add(slope.detach(), weights)

    def _at_a_time(self, entries: int) -> int:
        """How many passes, with so many slopes each, may share a backward."""
        if not self.together:
            return 1
        return max(1, most_entries(self.objective.device) // max(entries, 1))

    def _split(self, signs: Tensor) -> Tensor:
        """Weights of the positive and, where there is one, of the negative part."""
        if not self.signed:
            return signs[..., None]
        return torch.stack([signs.clamp_min(0), (-signs).clamp_min(0)], dim=-1)
