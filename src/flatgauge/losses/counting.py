"""What a mean over a batch is a mean of: its targets, its samples, or its weights.

A named loss says how it counts; of a user's own (`custom.CallableLoss`) the ways that are
possible are tried on the data, and the one that agrees with the loss is taken.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from flatgauge.losses.loss import IGNORED
from flatgauge.nested import tensors_in

Count = Callable[[Any, Any], int]
Weights = Callable[[Any, Any], float]


@dataclass(frozen=True)
class Counting:
    """How a batch counts: for so many rows, and with so much weight.

    `weights` is None where every row weighs 1.
    """

    rows: Count
    weights: Weights | None = None

    def weight(self, outputs: Any, targets: Any) -> float:
        """The weight that a mean over the batch stands for."""
        count = self.rows if self.weights is None else self.weights
        return float(count(outputs, targets))


def count_samples(outputs: Any, targets: Any) -> int:
    """The leading dimension of the outputs, or of the targets."""
    lengths = (t.shape[0] for t in tensors_in((outputs, targets)) if t.ndim)
    return next(lengths, 1)


def count_targets(outputs: Any, targets: Any) -> int:
    """Integer targets that are not -100; for other targets the samples."""
    if not isinstance(targets, Tensor) or not targets.ndim:
        return count_samples(outputs, targets)
    if targets.is_floating_point() or targets.is_complex():
        return count_samples(outputs, targets)
    return int((targets != IGNORED).sum())


BY_TARGETS = Counting(count_targets)
BY_SAMPLES = Counting(count_samples)
