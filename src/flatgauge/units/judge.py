"""What a user's loss averages over, and how precisely, seen on every batch.

A scalar does not say what it is a mean of. So each batch is split in several ways: with
weights m, the values v must satisfy m(S) v(S) = m(A) v(A) + m(B) v(B) for S = A ∪ B.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from flatgauge.data import Batch, map_batch, samples_in
from flatgauge.errors import LossError
from flatgauge.losses import CallableLoss
from flatgauge.losses.loss import Loss
from flatgauge.losses.weighted_cross_entropy import WeightedCrossEntropy
from flatgauge.nested import map_nested
from flatgauge.ranks import ALONE, Ranks
from flatgauge.units.likeness import (
    SUM_TOLERANCE,
    is_plain,
    is_wide,
    rounding_of,
    slack_of,
)
from flatgauge.units.network import Evaluate
from flatgauge.units.samples import Pool, Samples, odd_cut, rows_of, sliced
from flatgauge.units.subsets import MeanKind, kind_of
from flatgauge.vectors import Params

# Samples of a batch whose second derivatives are looked at.
LOOKED_AT = 16
# Samples that a kind of mean is told by, and how often others are tried.
TOLD_BY, DRAWS = 6, 4


@dataclass(frozen=True)
class Evidence:
    """What the batches of one process say of a loss.

    Attributes:
        plain: whether it is the named loss that it should be.
        wide: whether it can be evaluated in float64.
        coupled: whether whole batches are its unit.
        possible: the numbers of the countings that it may be a mean by.
        alike: the numbers of those that count as the first does.
        rows: counted.
        weight: of them.
        error: of second derivatives, squared.
        size: of these, squared.
        pool: samples of all batches.
    """

    plain: bool
    wide: bool
    coupled: bool
    possible: list[int]
    alike: list[int]
    rows: int
    weight: float
    error: float
    size: float
    pool: Pool


class Judge:
    """Looks at every batch of a pass, and then says what the loss is.

    Args:
        loss: a user's function.
        evaluate: outputs and targets of a batch at some parameters.
        point: the parameters.
        dtype: their floating type.

    Attributes:
        coupled: whether the loss makes whole batches its unit.
    """

    def __init__(
        self, loss: CallableLoss, evaluate: Evaluate, point: Params, dtype: torch.dtype
    ):
        self.loss = loss
        self.evaluate = partial(evaluate, point)
        self.dtype = dtype
        self.coupled = False
        self._device = next(iter(point.values())).device
        self._plain = loss.plain is not None
        self._wide = dtype == torch.float32
        self._possible = list(loss.countings)
        # Those that count as the first does, on these data.
        self._alike = list(loss.countings)
        self._rows, self._weight = 0, 0.0
        self._error, self._size = 0.0, 0.0
        self._pool = Pool()
        self._failed: Samples | None = None

    def look(self, batch: Batch, outputs: Any, targets: Any) -> None:
        """Take note of one batch, its outputs and its targets."""
        outputs = map_nested(torch.detach, outputs)
        with _quiet():
            first = self.loss.countings[0]
            self._rows += first.rows(outputs, targets)
            weight = first.weight(outputs, targets)
            self._weight += weight
            if self.loss.plain is not None:
                self._plain = self._plain and is_plain(
                    self.loss, outputs, targets, self.dtype
                )
                return
            self._wide = self._wide and is_wide(self.loss, outputs, targets, self.dtype)
            self._alike = [
                one for one in self._alike if one.weight(outputs, targets) == weight
            ]
            samples = sliced(outputs, targets) or self._alone(batch)
            if samples is None:
                # Values of their own say what its samples are.
                self.coupled = self.coupled or not self._value(outputs, targets).ndim
                return
            self._check(samples)
            if samples.exact:
                self._check_beside(outputs, targets)
                self._pool.add(samples)
                few = samples.take(torch.arange(min(samples.count, LOOKED_AT)))
                loss = replace(self.loss, wide=self._wide)
                error, size = rounding_of(loss, *few, apart=bool(self._possible))
                self._error, self._size = self._error + error, self._size + size

    @property
    def evidence(self) -> Evidence:
        """What was seen so far."""
        place = self.loss.countings.index
        return Evidence(
            self._plain,
            self._wide,
            self.coupled,
            [place(one) for one in self._possible],
            [place(one) for one in self._alike],
            self._rows,
            self._weight,
            self._error,
            self._size,
            self._pool,
        )

    def join(self, seen: list[Evidence]) -> None:
        """Take over what all processes saw, in the order of their batches."""
        self._plain = all(one.plain for one in seen)
        self._wide = all(one.wide for one in seen)
        self.coupled = any(one.coupled for one in seen)
        numbered = list(enumerate(self.loss.countings))
        self._possible = [c for i, c in numbered if all(i in e.possible for e in seen)]
        self._alike = [c for i, c in numbered if all(i in e.alike for e in seen)]
        self._rows = sum(one.rows for one in seen)
        self._weight = sum(one.weight for one in seen)
        self._error = sum(one.error for one in seen)
        self._size = sum(one.size for one in seen)
        self._pool = Pool.joined([one.pool for one in seen], self._device)

    def verdict(self, ranks: Ranks = ALONE) -> Loss:
        """The loss with what was found: the named one, or the function as it counts.

        A standard loss that the data show to be another needs another look. Of several
        processes, all have joined what they saw.

        Raises:
            LossError: if it is a sum, or a mean with weights that are not known.
        """
        if self.loss.plain is not None and self._plain:
            plain = self.loss.plain
            if not isinstance(plain, WeightedCrossEntropy):
                return plain
            return replace(plain, share=self._share(), function=self.loss.function)
        if self.loss.plain is not None:
            return replace(self.loss, plain=None)
        with _quiet():
            mixed = self._pool.samples()
            if mixed is not None:
                self._check(mixed)
                outputs, targets = mixed.take(torch.arange(mixed.count))
                self._check_beside(outputs, targets)
            if not self._possible:
                self._refuse_or_couple(ranks)
        possible = self._possible or list(self.loss.countings)
        alike = [one for one in possible if one in self._alike]
        # The last of those that are the same is the simplest: samples need no wait for
        # the device, so that a pass can be recorded.
        counting = alike[-1] if possible[0] in self._alike else possible[0]
        return replace(
            self.loss,
            countings=(counting,),
            share=1.0 if counting.weights is None else self._share(),
            wide=self._wide,
            rounding=self._rounding(),
            settled=True,
        )

    def _share(self) -> float:
        """Rows over weights: what a mean over the data is multiplied by to be of rows."""
        return self._rows / self._weight if self._weight > 0 else 1.0

    def _rounding(self) -> float:
        """Of the second derivatives, as a share of their size; 0 where they are 0."""
        if self._error == 0:
            return 0.0
        return math.sqrt(self._error / self._size) if self._size else math.inf

    def _alone(self, batch: Batch) -> Samples | None:
        """Samples evaluated by themselves, where the batch can be split."""
        count = samples_in(batch)
        if count is None:
            return None
        return Samples(
            count,
            lambda index: self.evaluate(map_batch(lambda t: rows_of(t, index), batch)),
            exact=False,
        )

    def _refuse_or_couple(self, ranks: Ranks) -> None:
        kind = self._told(ranks)
        if kind is MeanKind.SUM:
            raise LossError(
                f"the loss '{self.loss.name}' adds up its samples, so that its value "
                "depends on the size of the batches: return their mean "
                "(reduction='mean')."
            )
        if kind is MeanKind.WEIGHTED:
            raise LossError(
                f"the loss '{self.loss.name}' is a mean with other weights than one per "
                "sample or valid target, which other batches would change: return one "
                "value per sample, or use nn.CrossEntropyLoss with weight= or "
                "ignore_index=."
            )
        self.coupled = True

    def _told(self, ranks: Ranks) -> MeanKind:
        """The kind of mean, by what failed, by samples of all batches, or beside them."""
        own = None if self._failed is None else self._kind(self._failed)
        found = [kind for kind in ranks.gathered(own) if kind is not None]
        mixed = self._pool.samples()
        if mixed is not None:
            both = mixed.take(torch.arange(mixed.count))
            beside = sliced(map_nested(_moved, both[0]), both[1])
            found += [self._kind(one) for one in (mixed, beside) if one is not None]
        plain = [kind for kind in found if kind in (MeanKind.SUM, MeanKind.WEIGHTED)]
        return plain[0] if plain else MeanKind.COUPLED

    def _kind(self, samples: Samples) -> MeanKind:
        """Told by a few samples at a time, until they show more than a mean."""
        random = torch.Generator().manual_seed(0)
        for _ in range(DRAWS):
            chosen = self._chosen(samples, random)
            outputs, targets = samples.take(chosen)
            whole = self._number(outputs, targets)
            tolerance = self._tolerance(samples, outputs, [whole])

            def value(subset: tuple[int, ...], chosen: Tensor = chosen) -> float:
                return self._number(*samples.take(chosen[list(subset)]))

            kind = kind_of(value, len(chosen), tolerance)
            if kind is not MeanKind.MEAN:
                return kind
        # These few hide what the whole batch shows.
        return MeanKind.COUPLED

    def _chosen(self, samples: Samples, random: torch.Generator) -> Tensor:
        """A few samples, all but one with a value of their own where there are such."""
        order = torch.randperm(samples.count, generator=random)[:LOOKED_AT]
        values = [self._number(*samples.take(one[None])) for one in order]
        own = torch.tensor([math.isfinite(value) for value in values])
        other = order[~own][:1]
        return torch.cat([order[own][: TOLD_BY - len(other)], other])

    def _check_beside(self, outputs: Any, targets: Any) -> None:
        """Check other outputs: equal ones, as of a head of zeros, hide weights."""
        beside = sliced(map_nested(_moved, outputs), targets)
        if beside is not None:
            self._check(beside, where_finite=True)

    def _check(self, samples: Samples, where_finite: bool = False) -> None:
        """Strike out what the loss is not a mean of.

        Samples that are not the user's may lie where the loss is not defined: then only
        finite numbers count.
        """
        if samples.count < 2:
            return
        both = samples.take(torch.arange(samples.count))
        whole = self._totals(*both)
        for cut in _cuts(samples.count):
            one, other = (self._totals(*samples.take(part)) for part in cut)
            for counting, *numbers in zip(
                self.loss.countings, whole, one, other, strict=True
            ):
                allowed = self._tolerance(samples, both[0], numbers, samples.count)
                # Also where one is NaN.
                same = abs(numbers[0] - numbers[1] - numbers[2]) <= allowed
                if where_finite and not all(map(math.isfinite, numbers)):
                    continue
                if not same and counting in self._possible:
                    self._possible.remove(counting)
                    self._failed = samples

    def _tolerance(
        self, samples: Samples, outputs: Any, numbers: list[float], count: int = 1
    ) -> float:
        dtype = torch.float64 if samples.exact and self._wide else self.dtype
        return (
            SUM_TOLERANCE[dtype] * max(map(abs, numbers))
            + slack_of(outputs, dtype) * count
        )

    def _totals(self, outputs: Any, targets: Any) -> list[float]:
        """The sum over the samples, for everything that the loss may be a mean of."""
        value = self._value(outputs, targets)
        if value.ndim:
            return [float(value.sum())] * len(self.loss.countings)
        weights = [one.weight(outputs, targets) for one in self.loss.countings]
        return [float(value) * weight if weight else 0.0 for weight in weights]

    def _number(self, outputs: Any, targets: Any) -> float:
        return float(self._value(outputs, targets).sum())

    def _value(self, outputs: Any, targets: Any) -> Tensor:
        """NaN where the loss does not take these samples."""
        try:
            loss = replace(self.loss, wide=self._wide)
            return loss.value(outputs, targets).detach().double()
        except LossError:
            return torch.tensor(math.nan, dtype=torch.float64)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of a loss on samples that it would not be given."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _cuts(count: int) -> Iterator[tuple[Tensor, Tensor]]:
    """In two near the middle, a random third, and two single samples, from the rest."""
    everyone = torch.arange(count)
    mixed = torch.randperm(count, generator=torch.Generator().manual_seed(0))
    for order, cut in (
        (everyone, odd_cut(count)),
        (mixed, max(1, count // 3)),
        (mixed.flip(0), 1),
        (mixed, 1),
    ):
        yield order[:cut], order[cut:]


def _moved(tensor: Tensor) -> Tensor:
    """Moved at random by as much as it is large, if it is floating."""
    if not tensor.is_floating_point() or not tensor.numel():
        return tensor
    size = float(tensor.square().mean().sqrt()) or 1.0
    random = torch.Generator().manual_seed(0)
    noise = torch.randn(tensor.shape, generator=random, dtype=torch.float64)
    return tensor + size * noise.to(tensor)
