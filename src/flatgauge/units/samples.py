"""Subsets of the samples of a batch, as outputs and targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from flatgauge.data import leading_size
from flatgauge.nested import made_of_tensors, map_nested, tensors_in

Pair = tuple[Any, Any]


@dataclass(frozen=True)
class Samples:
    """The samples of a batch: their number, and outputs and targets of any of them.

    `exact` says that these are rows of the batch's own outputs, without rounding.
    """

    count: int
    take: Callable[[Tensor], Pair]
    exact: bool


def sliced(outputs: Any, targets: Any) -> Samples | None:
    """Rows of outputs and targets, where every tensor has one per sample."""
    both = (outputs, targets)
    count = leading_size(both)
    if count is None or leading_size(outputs) is None or not made_of_tensors(both):
        return None
    return Samples(count, lambda index: rows_of(both, index), exact=True)


def rows_of(value: Any, index: Tensor) -> Any:
    """Some rows of every tensor."""
    return map_nested(lambda t: t.detach()[index.to(t.device)], value)


def reach_of(outputs: Any) -> float:
    """The largest finite output."""
    found = [
        t.detach().abs().nan_to_num(0.0, 0.0, 0.0).max()
        for t in tensors_in(outputs)
        if t.is_floating_point() and t.numel()
    ]
    return float(torch.stack([one.double() for one in found]).max()) if found else 0.0


def odd_cut(count: int) -> int:
    """Where to cut a batch, near its middle, so that no small groups stay whole."""
    near = sorted(range(1, count), key=lambda k: abs(2 * k - count))
    return next((k for k in near if k % 2 and k % 3 and k % 5), 1)
