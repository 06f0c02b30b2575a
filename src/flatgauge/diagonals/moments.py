"""Means and standard errors over random probes, entry by entry."""

from __future__ import annotations

import torch

from flatgauge.vectors import Params, map_tensors, scale, zeros_like

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
        for name, value in sample.items():
            before = value - self.mean[name]
            self.mean[name] += before / self.count
            if self._spread:
                self._spread[name] += before * (value - self.mean[name])

    def variance_of_mean(self) -> Params:
        """The square of the standard error."""
        return scale(self._spread, 1 / (self.count * (self.count - 1)))

    def estimate(self) -> Estimate:
        """The mean and its standard error."""
        return self.mean, map_tensors(torch.sqrt, self.variance_of_mean())
