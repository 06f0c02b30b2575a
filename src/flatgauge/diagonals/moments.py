"""Means and standard errors over random probes, entry by entry."""

from __future__ import annotations

import torch

from flatgauge.vectors import (
    Params,
    add,
    add_into,
    map_tensors,
    multiply,
    scale,
    zeros_like,
)

Estimate = tuple[Params, Params]


class Moments:
    """Mean and variance over probes, entry by entry, in the memory of two vectors."""

    def __init__(self, space: Params, spread: bool = True):
        self.count = 0
        self.mean = zeros_like(space)
        self._spread = zeros_like(space) if spread else {}

    def add(self, sample: Params) -> None:
        """Take another estimate into account."""
        self.count += 1
        before = add(sample, self.mean, -1.0)
        add_into(self.mean, map_tensors(lambda t: t / self.count, before))
        if self._spread:
            after = add(sample, self.mean, -1.0)
            add_into(self._spread, multiply(before, after))

    def variance_of_mean(self) -> Params:
        """The square of the standard error."""
        return scale(self._spread, 1 / (self.count * (self.count - 1)))

    def estimate(self) -> Estimate:
        """The mean and its standard error."""
        return self.mean, map_tensors(torch.sqrt, self.variance_of_mean())
