"""What every measure should be, from the dense reference."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

import torch
from torch import Tensor

from fuzz.balancing import balanced
from fuzz.parts import Use, View, stack, whole
from fuzz.reference import Reference

NORMALIZED = "normalized-cross-entropy"


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
        names = list(layers)
        most = max((len(uses[name].views) for name in names), default=1)

        def at(shift: float, reading: int) -> float:
            return sum(
                _sharpness(h[n], parts[n], _nth(uses[n].views, reading), shift)
                for n in names
            )

        answers = [self._shaken(lambda s, r=r: at(s, r)) for r in range(most)]
        slack = max(one.slack for one in answers)
        return Answer([one.values[0] for one in answers], slack)

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
        names = list(layers)

        def total(split: bool) -> float:
            return sum(_logarithm(parts[n], uses[n], split) for n in names)

        return Answer([total(False), total(True)], self.rounding * (1 + len(names)))

    def _shaken(self, at: Callable[[float], float]) -> Answer:
        """A value, and what it moves when curvatures move by their rounding."""
        value = at(0.0)
        slack = max(abs(at(s) - value) for s in (self.rounding, -self.rounding))
        return Answer([value], slack)


def _nth(views: tuple[View, ...], reading: int) -> View:
    return views[min(reading, len(views) - 1)]


def _sharpness(h: Tensor, weight: Tensor, view: View, shift: float) -> float:
    shaken = (h + shift * h.abs().max()).clamp_min(0)
    pairs = zip(view(shaken), view(weight.square()), strict=True)
    return float(sum(balanced(a.numpy(), b.numpy()) for a, b in pairs))


def _logarithm(weight: Tensor, use: Use, split: bool) -> float:
    if not (split or use.separate):
        return _log_norm(weight.flatten(1))
    view = use.views[-1]
    if view is whole:
        return _log_norm(weight.flatten(1))
    if view is stack or weight.ndim == 2:
        return sum(_log_norm(one) for one in view(weight))
    groups = len(view(weight))
    return sum(_log_norm(one.flatten(1)) for one in weight.chunk(groups))


def _log_norm(matrix: Tensor) -> float:
    norm = float(torch.linalg.matrix_norm(matrix, 2))
    return math.log(norm) if norm else -math.inf
