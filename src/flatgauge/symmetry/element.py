"""One rescaling: a log-scale for every parameter and buffer that it moves."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.layout import LogScale


@dataclass(frozen=True)
class Element:
    """A diagonal rescaling θ → exp(s) θ, as sums of broadcastable log-scale terms.

    Elements form a commutative group: `g @ h` acts as h, then g.

    Attributes:
        log_scales: For each tensor that moves, terms that broadcast to its shape and
            are summed, such as a column for the rows of a matrix and a row for its
            columns.
        shifts: Buffers v that move as v + eps, with their eps.
    """

    log_scales: Mapping[str, LogScale]
    shifts: Mapping[str, float] = field(default_factory=dict)

    def __matmul__(self, other: Element) -> Element:
        """The composition."""
        total = dict(self.log_scales)
        for name, terms in other.log_scales.items():
            total[name] = _summed(total[name], terms) if name in total else terms
        return Element(total, {**self.shifts, **other.shifts})

    def inverse(self) -> Element:
        """The element that undoes this one."""
        return self.power(-1.0)

    def power(self, exponent: float) -> Element:
        """The element with all log-scales multiplied by `exponent`."""
        scaled = {
            name: tuple(exponent * term for term in terms)
            for name, terms in self.log_scales.items()
        }
        return Element(scaled, self.shifts)

    def log_scale(self, name: str, shape: torch.Size) -> Tensor:
        """The log-scale of one tensor in full."""
        total = torch.zeros(shape, dtype=torch.float64)
        for term in self.log_scales.get(name, ()):
            total = total + term
        return total

    def apply(self, name: str, tensor: Tensor) -> Tensor:
        """The rescaled tensor.

        Raises:
            SymmetryError: if a variance would leave its range by rounding.
        """
        shift = self.shifts.get(name, 0.0)
        result = tensor + shift if shift else tensor
        for term in self.log_scales.get(name, ()):
            factor = exponential(term).to(device=tensor.device, dtype=tensor.dtype)
            result = result * factor
        if not shift:
            return result
        if bool((result <= 0).any()):
            raise SymmetryError(
                f"the element moves '{name}' to -eps, where the network is not defined: "
                "draw an element with a smaller spread."
            )
        return result - shift


def exponential(log_scale: Tensor) -> Tensor:
    """exp(log_scale), without rounding where the result is a power of two."""
    power = log_scale / math.log(2.0)
    whole = power.round()
    exact = torch.ldexp(torch.ones_like(whole), whole.to(torch.int32))
    return torch.where((power - whole).abs() < 1e-12, exact, log_scale.exp())


def _summed(left: LogScale, right: LogScale) -> LogScale:
    if [term.shape for term in left] == [term.shape for term in right]:
        return tuple(a + b for a, b in zip(left, right, strict=True))
    return left + right
