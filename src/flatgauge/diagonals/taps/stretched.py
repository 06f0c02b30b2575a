"""Parameters that are stretched over samples and positions: added, multiplied, expanded."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.diagonals.taps.tap import Tap


@dataclass(frozen=True)
class Operand:
    """A tensor θ that adds ±x ∘ θ to an output, as broadcasting stretches it.

    Attributes:
        shape: its own.
        aligned: the same with dimensions of size 1, ending where the output's ends.
        factor: x, which has the output's shape or stretches to it; None for ones.
    """

    shape: torch.Size
    aligned: tuple[int, ...]
    factor: Tensor | None = None


@dataclass
class StretchedTap(Tap):
    """A sum of operands ±x ∘ θ, of which each has a role.

    The gradient of sample n by θ is Σ δ ∘ x over all positions of n that share an entry.
    """

    operands: dict[str, Operand]

    @property
    def roles(self) -> set[str]:
        """Those of the operands."""
        return set(self.operands)

    def sample_dims(self, ndim: int) -> Iterable[int]:
        """Those along which every parameter is stretched."""
        sizes = [self._sizes(role, ndim) for role in self.names]
        return [dim for dim in range(ndim) if all(one[dim] == 1 for one in sizes)]

    def squares(self, role: str, slope: Tensor, weights: Tensor) -> Tensor:
        """Sum [N, *positions] to [N, *shape], then square."""
        operand = self.operands[role]
        each = slope if operand.factor is None else slope * operand.factor
        each = self.layout.samples_first(each)
        sums = each.sum_to_size(len(weights), *self._sizes(role, slope.ndim))
        squares = torch.tensordot(weights.mT, sums.square(), dims=1)
        return squares.reshape(-1, *operand.shape)

    def _sizes(self, role: str, ndim: int) -> tuple[int, ...]:
        aligned = self.operands[role].aligned
        return (1,) * (ndim - len(aligned)) + aligned


def added(input, other) -> Tap | None:
    """torch.add and torch.sub: a sign does not matter to squares."""
    return _joined(input, other, factors=(None, None))


def multiplied(input, other) -> Tap | None:
    """torch.mul."""
    return _joined(input, other, factors=(other, input))


def expanded(input, *sizes, size=None) -> Tap:
    """Tensor.expand."""
    return StretchedTap({"input": Operand(input.shape, input.shape)})


def expanded_as(input, other) -> Tap:
    """Tensor.expand_as."""
    return expanded(input)


def _joined(input, other, factors) -> Tap | None:
    both = {"input": input, "other": other}
    if not all(isinstance(one, Tensor) for one in both.values()):
        return None
    return StretchedTap(
        {
            role: Operand(one.shape, one.shape, None if x is None else x.detach())
            for (role, one), x in zip(both.items(), factors, strict=True)
        }
    )
