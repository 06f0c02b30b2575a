"""What every measure should be, from the dense reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice, product

import torch
from torch import Tensor

from fuzz.balancing import balanced
from fuzz.parts import Use, View, below, beside, stack
from fuzz.reference import Reference

NORMALIZED = "normalized-cross-entropy"


# Combinations of readings of the parameters that are looked at.
MOST_READINGS = 64


@dataclass
class Answer:
    """Every value that is right, and how far off rounding alone may bring one."""

    values: list[float]
    slack: float = 0.0
    extra: dict[str, float] = field(default_factory=dict)


class Truth:
    """Dense quantities of one objective, each computed when it is first asked for."""

    def __init__(self, reference: Reference, rounding: float):
        self.reference = reference
        self.rounding = rounding
        self._hessians: dict[str, Tensor] = {}

    def hessian(self, loss: str = "own") -> Tensor:
        if loss not in self._hessians:
            self._hessians[loss] = self.reference.hessian(loss)
        return self._hessians[loss]

    @cached_property
    def value(self) -> float:
        return float(self.reference.value().detach())

    @cached_property
    def gradient(self) -> Tensor:
        return self.reference.gradient()

    @cached_property
    def row_gradients(self) -> tuple[Tensor, Tensor]:
        return self.reference.row_gradients()

    @cached_property
    def gauss_newton(self) -> Tensor:
        return self.reference.gauss_newton()

    def trace(self) -> Answer:
        h = self.hessian().diagonal()
        return Answer([float(h.sum())], self.rounding * float(h.abs().sum()))

    def extremes(self, metric: str) -> Answer:
        """λmax of S H S, and λmin beside it."""
        theta = self.reference.theta
        parts = self.reference.by_name(theta)
        scales = {
            "euclidean": lambda: torch.ones_like(theta),
            "node": lambda: theta.abs(),
            "layer": lambda: torch.cat(
                [p.norm().expand(p.numel()) for p in parts.values()]
            ),
        }[metric]()
        eigenvalues = torch.linalg.eigvalsh(scales[:, None] * self.hessian() * scales)
        low, high = float(eigenvalues[0]), float(eigenvalues[-1])
        slack = self.rounding * max(abs(low), abs(high))
        return Answer([high], slack, {"smallest": low})

    def matrix_sharpness(self, loss: str) -> Answer:
        """Σ ‖W‖ √max(Σ h, 0) over tensors."""
        h = self.hessian(loss).diagonal()
        parts = self.reference.by_name(self.reference.theta)

        def at(shift: float) -> float:
            return sum(
                float(p.norm())
                * math.sqrt(max(float(c.sum() + shift * c.abs().sum()), 0.0))
                for p, c in zip(
                    parts.values(), self.reference.by_name(h).values(), strict=True
                )
            )

        return self._shaken(at)

    def sharpness(
        self, loss: str, layers: Iterable[str], uses: dict[str, Use]
    ) -> Answer:
        """NS0 over these layers, each read as one of the ways that are right."""
        h = self.reference.by_name(self.hessian(loss).diagonal())
        parts = self.reference.by_name(self.reference.theta)
        readings = [
            [
                self._shaken(lambda s, n=n, v=v: _sharpness(h[n], parts[n], v, s))
                for v in uses[n].views
            ]
            for n in layers
        ]
        chosen = list(islice(product(*readings), MOST_READINGS))
        slack = max(sum(one.slack for one in each) for each in chosen)
        # Where balancing overflows, nothing is known.
        slack = slack if math.isfinite(slack) else math.inf
        return Answer([sum(one.values[0] for one in each) for each in chosen], slack)

    def fisher_rao(self, diagonal: bool) -> Answer:
        """E⟨θ, ∇ℓ⟩² or Σ θ² E(∂ℓ)², with the rows' weights in either place."""
        gradients, weights = self.row_gradients
        theta = self.reference.theta
        share = weights / weights.sum()
        even = torch.full_like(share, 1 / len(share))
        terms = gradients * theta
        squares = terms.square().sum(1) if diagonal else terms.sum(1).square()
        relative = share * len(share)
        found = [(share * squares).sum(), (even * relative.square() * squares).sum()]
        # ⟨θ, ∇ℓ⟩ may be zero by cancellation.
        size = (share * terms.abs().sum(1).square()).sum()
        return Answer([float(v) for v in found], self.rounding * float(size))

    def norm_product(self, layers: Iterable[str], uses: dict[str, Use]) -> Answer:
        """Σ ln ‖W‖₂ over these layers."""
        parts = self.reference.by_name(self.reference.theta)
        readings = [_logarithms(parts[name], uses[name]) for name in layers]
        totals = [sum(each) for each in islice(product(*readings), MOST_READINGS)]
        return Answer(totals, self.rounding * (1 + len(readings)))

    def _shaken(self, at: Callable[[float], float]) -> Answer:
        """A value, and what it moves when curvatures move by their rounding."""
        value = at(0.0)
        slack = max(abs(at(s) - value) for s in (self.rounding, -self.rounding))
        return Answer([value], slack)


def _sharpness(h: Tensor, weight: Tensor, view: View, shift: float) -> float:
    shaken = (h + shift * h.abs().max()).clamp_min(0)
    pairs = zip(view(shaken), view(weight.square()), strict=True)
    return float(sum(balanced(a.numpy(), b.numpy()) for a, b in pairs))


def _logarithms(weight: Tensor, use: Use) -> list[float]:
    """Σ ln ‖W‖₂ over the matrices of every reading; rows of kernels may be either side."""
    found = [] if use.separate else [_log_norm(weight.flatten(1))]
    for view in use.views:
        if weight.ndim == 2 or view in (stack, beside, below):
            found.append(sum(_log_norm(one) for one in view(weight)))
            continue
        groups = weight.chunk(len(view(weight)))
        found.append(sum(_log_norm(one.flatten(1)) for one in groups))
        found.append(sum(_log_norm(one.transpose(0, 1).flatten(1)) for one in groups))
    return sorted(set(found))


def _log_norm(matrix: Tensor) -> float:
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    return math.log(norm) if norm else -math.inf
