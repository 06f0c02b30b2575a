"""Sums of squared per-sample gradients, for any model.

Operations that are understood (`taps/`) give their share from inputs and slopes, on
every batch after a look at whether that explains all of its gradient (`attribution.py`).
What it does not explain, and whatever does not agree with plain differentiation of a few
single samples, is differentiated sample by sample.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice

import torch

from flatgauge.curvature.samples import (
    double,
    first_with_several,
    sample_length,
    take_samples,
)
from flatgauge.data import Batch, map_batch
from flatgauge.diagonals.shares import (
    COUPLED,
    Pull,
    Pulls,
    Shares,
    TappedShares,
    by_slot,
)
from flatgauge.errors import LossError, ModelError
from flatgauge.losses import row_loss
from flatgauge.losses.loss import Rows, ValueLoss
from flatgauge.memo import once_per_network
from flatgauge.memory import memory_budget
from flatgauge.objective import Objective
from flatgauge.vectors import Params, add, check_finite, scale, zeros_like

# The relative distance of sums of squares in float64 that is rounding, which a square
# doubles; a wrong layout of samples or positions is off by far more.
SAME_SQUARES = 1e-8
CHECKED_SAMPLES = 3
CHECKED_SLOTS = 2
# Where pulls share a backward, one alone could hide a wrong layout.
CHECKED_TOGETHER = 2
# The part of the memory budget that the taps of one piece of a batch may fill, and
# what is held of each of their numbers, with the copies that are made of some.
MEMORY_SHARE = 4
COPIES = 2


@dataclass
class Trials:
    """What trials on a few samples have told about a model so far.

    Attributes:
        together: whether several pulls may share one backward, on a GPU.
        singly: the parameters to differentiate sample by sample.
        proved: those whose shares have agreed with plain differentiation.
        entries: the numbers that are held of each sample while its pulls run.
    """

    together: bool = False
    singly: set[str] = field(default_factory=set)
    proved: set[str] = field(default_factory=set)
    entries: int = 0

    def join(self, others: list[Trials]) -> None:
        """What any process found to fail is tried by none again."""
        self.together = all(one.together for one in others)
        self.singly = set().union(*(one.singly for one in others))
        self.entries = max(one.entries for one in others)


class SquaredGradients:
    """(1/N) Σ_rows Σ_pulls s (∂⟨f_row, c⟩/∂θ)², entry by entry.

    Args:
        objective: model, data, loss and the point; the loss is a named one.
        loss: whose rows are meant, where it is not the objective's own.
        signed: whether pulls may have negative signs, which are summed apart.
    """

    def __init__(
        self,
        objective: Objective,
        *,
        loss: ValueLoss | None = None,
        signed: bool = True,
    ):
        self.loss = loss or row_loss(objective.loss, "per-sample derivatives need")
        if objective.coupled:
            raise ModelError(COUPLED)
        self.objective = objective
        self.signed = signed
        self.trials = _trials(objective, self.loss)

    def mean(self, pulls: Pulls) -> Params:
        """The sum over all batches, divided by the number of rows."""
        plus, minus = self.parts(pulls)
        return add(plus, minus, -1.0)

    def parts(self, pulls: Pulls) -> tuple[Params, Params]:
        """The same, positive and negative signs apart: the mean is their difference."""

        def term(batch: Batch) -> Params:
            total = self._shares().nothing(self.objective.parameters)
            for piece in self._pieces(batch):
                for name, share in self._piece(piece, pulls).items():
                    total[name] += share
            return total

        total = scale(self.objective.sum(term), 1 / self.objective.sample_count)
        self.trials.join(self.objective.ranks.gathered(self.trials))
        check_finite(total, "diagonal")
        plus = {name: both[0] for name, both in total.items()}
        if not self.signed:
            return plus, zeros_like(plus)
        return plus, {name: both[1] for name, both in total.items()}

    def _shares(self) -> Shares:
        return Shares(self.objective, self.loss, self.signed, self.trials.together)

    def _pieces(self, batch: Batch) -> Iterator[Batch]:
        """Parts of a batch whose taps together hold a bounded amount."""
        objective = self.objective
        room = memory_budget(objective.device, objective.memory) // MEMORY_SHARE
        each = COPIES * objective.dtype.itemsize * max(self.trials.entries, 1)
        step = max(1, room // each)
        length = sample_length(batch)
        if step >= length:
            yield batch
            return
        for start in range(0, length, step):
            yield take_samples(batch, slice(start, start + step))

    def _piece(self, piece: Batch, pulls: Pulls) -> Params:
        """The shares of all parameters that the piece depends on."""
        found = self._tapped(piece, pulls)
        unproved = found.shares.keys() - self.trials.proved
        if unproved:
            loudest = {found.loudest[name] for name in unproved}
            _try(self.objective, self.loss, _with_others(piece, loudest), self.trials)
        shares = {n: s for n, s in found.shares.items() if n not in self.trials.singly}
        left = found.used - shares.keys()
        if not left:
            return shares
        return {**shares, **self._shares().singly(piece, pulls, sorted(left))}

    def _tapped(self, piece: Batch, pulls: Pulls) -> TappedShares:
        found: TappedShares | None = None
        if self.trials.together:
            # An operation that was not met before may not take several pulls at a time.
            with suppress(RuntimeError):
                found = self._shares().tapped(piece, pulls, self.trials.singly)
            self.trials.together = found is not None
        if found is None:
            found = self._shares().tapped(piece, pulls, self.trials.singly)
        self.trials.entries = found.entries
        return found


@once_per_network
def _trials(objective: Objective, loss: ValueLoss) -> Trials:
    """What is known at this point; at first, what three samples tell.

    The rows, and with them the slots, are the loss's own.
    """
    trials = Trials(together=objective.device.type == "cuda")
    with objective.isolated():
        few = take_samples(first_with_several(objective), slice(0, CHECKED_SAMPLES))
        _try(objective, loss, few, trials)
    return trials


def _with_others(piece: Batch, samples: set[int]) -> Batch:
    """These samples, and the first others if they are very few."""
    chosen = sorted(samples)
    others = [i for i in range(sample_length(piece)) if i not in chosen]
    fill = max(0, CHECKED_SAMPLES - len(chosen))
    return map_batch(lambda t: t[chosen + others[:fill]], piece)


def _try(objective: Objective, loss: ValueLoss, few: Batch, trials: Trials) -> None:
    """Compare on a few samples in float64, where nothing wrong can hide behind rounding.

    What agrees is proved; what does not goes sample by sample from now on.
    """
    exact = objective.in_double()
    with exact.isolated():
        samples = map_batch(double, few)
        if trials.together:
            # Not every operation of a backward can be done for several pulls at a time.
            with suppress(RuntimeError):
                wrong, proved = _compared(exact, loss, samples, together=True)
                if not wrong:
                    trials.proved |= proved
                    return
            trials.together = False
        wrong, proved = _compared(exact, loss, samples, together=False)
    trials.singly |= wrong
    trials.proved |= proved


def _compared(
    objective: Objective, loss: ValueLoss, few: Batch, together: bool
) -> tuple[set[str], set[str]]:
    """The parameters whose shares differ from plain differentiation, and that agree."""
    shares = Shares(objective, loss, True, together)
    columns = CHECKED_TOGETHER if together else 1

    def trial(rows: Rows) -> Iterator[Pull]:
        # Functions of the sample's own outputs: the same in any batch.
        outputs = rows.outputs.detach()
        # Not 0 where outputs are: a network's last layer may start from nothing.
        moved = [outputs + shift for shift in range(columns)]
        waves = torch.stack([one.sin() + one.cos() for one in moved], dim=2)
        ones = torch.ones_like(outputs[:, :1]).expand(-1, columns)
        yield from islice(by_slot(rows, waves, ones), CHECKED_SLOTS * columns)

    names = list(objective.parameters)
    # First: where samples are not independent, it says so.
    slow = shares.singly(few, trial, names)
    fast = {**shares.nothing(names), **shares.tapped(few, trial, ()).shares}
    size = {name: float(slow[name].norm()) for name in names}
    wrong = {
        name
        for name in names
        if float((fast[name] - slow[name]).norm()) > SAME_SQUARES * size[name]
    }
    return wrong, {name for name in names if size[name] > 0} - wrong


def samples_stand_alone(objective: Objective) -> bool:
    """Whether batches split into samples that do not influence each other."""
    try:
        SquaredGradients(objective)
    except (ModelError, LossError):
        return False
    return True
