"""What one batch adds to sums of squared per-sample gradients, by operations or singly."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

from flatgauge.curvature.agreement import is_near, working_rounding
from flatgauge.curvature.jacobian import pulled_back
from flatgauge.curvature.samples import sample_length, take_samples
from flatgauge.data import Batch
from flatgauge.diagonals.attribution import TapWatcher, attribute
from flatgauge.diagonals.taps.tap import Tap, most_entries
from flatgauge.errors import ModelError
from flatgauge.losses.loss import Rows, ValueLoss
from flatgauge.objective import Objective
from flatgauge.shapes import Float
from flatgauge.vectors import Params

COUPLED = (
    "the samples of a batch influence each other (BatchNorm in train mode?), so they have "
    "no gradients of their own: use mode='eval'."
)


@dataclass(frozen=True)
class Pull:
    """One backward pass: a vector c for each row, and a sign s.

    At most one row of each sample has a vector that is not 0, so that what flows back is
    that row's own.
    """

    columns: Float[Tensor, "M K"]
    signs: Float[Tensor, " M"]


Pulls = Callable[[Rows], Iterator[Pull]]


def by_slot(
    rows: Rows, columns: Float[Tensor, "M K C"], signs: Float[Tensor, "M C"]
) -> Iterator[Pull]:
    """For the first rows of all samples, then the second ones, ...: for each column."""
    order = torch.arange(rows.samples.numel(), device=rows.samples.device)
    first = torch.searchsorted(rows.samples, rows.samples)
    slots = order - first
    for slot in range(int(slots.max()) + 1 if slots.numel() else 0):
        here = (slots == slot).to(columns.dtype)
        for index in range(columns.shape[2]):
            yield Pull(columns[:, :, index] * here[:, None], signs[:, index] * here)


def stacked_slopes(
    outputs: Tensor, edges: list, columns: Float[Tensor, "G M K"]
) -> list[Tensor | None]:
    """The slopes ∂⟨outputs, c⟩/∂edge of all columns c by one backward, stacked like them."""
    alone = len(columns) == 1
    slopes = torch.autograd.grad(
        outputs,
        edges,
        columns[0] if alone else columns,
        retain_graph=True,
        allow_unused=True,
        is_grads_batched=not alone,
    )
    if alone:
        return [None if slope is None else slope[None] for slope in slopes]
    return list(slopes)


@dataclass(frozen=True)
class TappedShares:
    """The shares of understood operations in one batch.

    Attributes:
        shares: by parameter, for those that are explained.
        used: the parameters that the outputs depend on.
        loudest: for each explained parameter, a sample on which it has a large slope.
        entries: the numbers that are held of each sample while its pulls run.
    """

    shares: Params
    used: set[str]
    loudest: dict[str, int]
    entries: int = 0


@dataclass(frozen=True)
class Shares:
    """Σ_rows Σ_pulls s (∂⟨f_row, c⟩/∂θ)² over one batch, entry by entry.

    With `signed`, positive and negative signs are summed apart and lead the result.
    Several pulls share one backward where `together` is true.
    """

    objective: Objective
    loss: ValueLoss
    signed: bool
    together: bool

    def nothing(self, names: Collection[str]) -> Params:
        """Zeros for the positive part and, where there is one, for the negative."""
        point = self.objective.parameters
        kinds = 2 if self.signed else 1
        return {
            name: point[name].new_zeros(kinds, *point[name].shape) for name in names
        }

    def tapped(
        self, batch: Batch, pulls: Pulls, singly: Collection[str]
    ) -> TappedShares:
        """From the inputs and slopes of the operations that are understood.

        Each parameter is looked at on all samples of the batch; those in `singly` are
        left out.
        """
        point = self.objective.leaves()
        with TapWatcher(point) as watcher:
            outputs, targets = self.objective.evaluate(point, batch)
        rows = self.loss.rows(outputs, targets)
        if not rows.outputs.requires_grad:
            return TappedShares({}, set(), {})
        skipped = watcher.others.union(singly)
        taps = [
            tap for tap in watcher.taps if not skipped.issuperset(tap.names.values())
        ]
        count = sample_length(batch)
        used, explained = attribute(self.objective, rows, taps, point, count)
        trusted = explained.keys() - skipped
        taps = [tap for tap in taps if not trusted.isdisjoint(tap.names.values())]
        self._add_up(rows, pulls, taps, watcher.entries, count)
        totals = [tap.total() for tap in taps]
        shares = {n: t for found in totals for n, t in found.items() if n in trusted}
        shares = {**self.nothing(trusted - shares.keys()), **shares}
        held = sum(tap.entries for tap in taps) // count
        return TappedShares(shares, used, explained, held)

    def singly(self, batch: Batch, pulls: Pulls, names: Collection[str]) -> Params:
        """By plain differentiation of one sample at a time.

        Raises:
            ModelError: if a sample alone has other outputs than in its batch.
        """
        point = self.objective.parameters
        total = self.nothing(names)
        alone: list[Tensor] = []
        for index in range(sample_length(batch)):
            single = take_samples(batch, slice(index, index + 1))
            leaves = {name: point[name].detach().requires_grad_() for name in names}
            rows = self._rows({**point, **leaves}, single)
            alone.append(rows.outputs.detach())
            if not rows.outputs.requires_grad:
                continue
            for pull in pulls(rows):
                weights = self._split(pull.signs).sum(0)
                slopes = pulled_back(rows.outputs, leaves, pull.columns)
                for name, slope in slopes.items():
                    total[name] += torch.stack([w * slope.square() for w in weights])
        self._check_independent(batch, torch.cat(alone))
        return total

    def _check_independent(self, batch: Batch, apart: Tensor) -> None:
        """A sample's outputs must not depend on the others of its batch.

        Raises:
            ModelError: if they do.
        """
        together = self._rows(self.objective.parameters, batch).outputs.detach()
        # Outputs have been through one pass, and slopes through two.
        allowed = working_rounding(self.objective, in_double=1e-8)
        if together.shape == apart.shape:
            # Row by row: beside a large one, the others would not be seen.
            size = together.abs().amax(1, keepdim=True)
            if is_near(apart, together, allowed, size):
                return
        raise ModelError(COUPLED)

    def _rows(self, params: Params, batch: Batch) -> Rows:
        return self.loss.rows(*self.objective.evaluate(params, batch))

    def _add_up(
        self, rows: Rows, pulls: Pulls, taps: list[Tap], entries: int, count: int
    ) -> None:
        """Add all pulls, with so many slopes each, to the sums of the taps."""
        if not taps:
            return
        edges, each = [tap.output for tap in taps], pulls(rows)
        at_a_time = 1
        if self.together:
            most = most_entries(self.objective.device)
            at_a_time = max(1, most // max(entries, 1))
        while group := list(islice(each, at_a_time)):
            columns = torch.stack([pull.columns for pull in group])
            slopes = stacked_slopes(rows.outputs, edges, columns)
            shares = self._split(torch.stack([pull.signs for pull in group]))
            weights = shares.new_zeros(len(shares), count, shares.shape[2])
            weights.index_add_(1, rows.samples, shares)
            for tap, slope in zip(taps, slopes, strict=True):
                if slope is not None:
                    # Outputs may be coarser than what they were computed from.
                    tap.add(slope.detach(), weights.to(slope.dtype))

    def _split(self, signs: Tensor) -> Tensor:
        """Weights of the positive and, where there is one, of the negative part."""
        if not self.signed:
            return signs[..., None]
        return torch.stack([signs.clamp_min(0), (-signs).clamp_min(0)], dim=-1)
