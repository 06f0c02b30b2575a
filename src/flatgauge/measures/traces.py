"""The traces of the Hessian's diagonal blocks, and sums of their roots."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from flatgauge.results import Status
from flatgauge.solvers.student import standard_error

# Standard errors within which a trace cannot be told from zero.
VANISHING = 2.0


@dataclass(frozen=True)
class RootSum:
    """Σ_l a_l √max(t_l, 0), by tensor, with its standard error (None if exact).

    `vanishing` names the tensors whose traces cannot be told from zero.
    """

    layers: dict[str, float]
    error: float | None
    vanishing: list[str]

    @property
    def value(self) -> float:
        """The sum."""
        return sum(self.layers.values())


@dataclass(frozen=True)
class Traces:
    """tr H_ll for every tensor l, and independent estimates of it where it is random.

    `samples` is empty for exact traces; each of its members is unbiased, and `mean` is
    their mean. `rounding` is what an exact one may be off by, if that is known, and
    `noise` what it is off by if its entries are rounded independently of each other.
    """

    mean: dict[str, float]
    samples: list[dict[str, float]]
    method: str
    status: Status
    message: str
    rounding: Mapping[str, float] | None = None
    noise: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def averaged(
        samples: list[dict[str, float]], method: str, stopped: str = ""
    ) -> Traces:
        """The mean of independent unbiased estimates, and what ended them early."""
        mean = {n: math.fsum(s[n] for s in samples) / len(samples) for n in samples[0]}
        if stopped:
            return Traces(mean, samples, method, Status.NOT_CONVERGED, stopped)
        message = (
            "Each tensor's trace is estimated without bias, and the uncertainty is a "
            f"standard error from {len(samples)} independent estimates: two of them "
            "hold in about 95 %."
        )
        return Traces(mean, samples, method, Status.ESTIMATED, message)

    def root_sum(self, factors: Mapping[str, float]) -> RootSum:
        """Σ_l a_l √max(t_l, 0) for nonnegative a_l, clipped after the sum over a tensor.

        The standard error is the delta method's, with two changes where a root is not
        nearly linear. Its slope is that of the secant between t − s and t + s, with s
        the standard error of t, which stays finite at 0. And where t cannot be told from
        zero, the root of the noise is counted in full, since it is never negative.

        Args:
            factors: a_l by name; other tensors do not count.
        """
        if not self.samples:
            return self._exact_root_sum(factors)
        layers = {
            name: factor * math.sqrt(max(self.mean[name], 0.0))
            for name, factor in factors.items()
        }
        names = list(factors)
        drawn = np.array([[one[name] for name in names] for one in self.samples])
        spread = standard_error(drawn)
        middle = np.maximum(drawn.mean(axis=0), 0.0)
        rise = np.sqrt(middle + spread) - np.sqrt(np.maximum(middle - spread, 0.0))
        slope = np.divide(rise, 2 * spread, out=np.zeros_like(rise), where=spread > 0)
        slope *= np.array([factors[name] for name in names])
        vanishing = middle <= VANISHING * spread
        told = float(standard_error(drawn @ np.where(vanishing, 0.0, slope)))
        untold = float((slope * spread)[vanishing].sum())
        hidden = [n for n, v, s in zip(names, vanishing, slope, strict=True) if v and s]
        return RootSum(layers, math.hypot(told, untold), hidden)

    def _exact_root_sum(self, factors: Mapping[str, float]) -> RootSum:
        """The sum for exact traces, and what their rounding makes of it.

        A trace that rounding cannot tell from 0 is 0: its root would be the root of
        rounding, which is larger than rounding. The error holds what it may be.
        """
        layers, error, vanishing = {}, 0.0, []
        for name, factor in factors.items():
            rounding = 0.0 if self.rounding is None else self.rounding[name]
            trace = self.mean[name]
            ends = [math.sqrt(max(trace + sign * rounding, 0.0)) for sign in (-1, 1)]
            if factor and abs(trace) < self.noise.get(name, 0.0):
                vanishing.append(name)
                trace = 0.0
            root = math.sqrt(max(trace, 0.0))
            layers[name] = factor * root
            error += factor * max(abs(root - end) for end in ends)
        return RootSum(layers, None if self.rounding is None else error, vanishing)
