"""Random choices that depend on (seed, index) only, and on no global state."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

T = TypeVar("T")


class Draw:
    """One network's source of random numbers."""

    def __init__(self, seed: int, index: int):
        self._random = random.Random(f"flatgauge fuzz {seed} {index}")
        self._tensors = torch.Generator().manual_seed(self._random.getrandbits(60))

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def between(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return self._random.randint(low, high)

    def uniform(self, low: float, high: float) -> float:
        return self._random.uniform(low, high)

    def one_of(self, choices: Sequence[T]) -> T:
        return self._random.choice(choices)

    def weighted(self, choices: Sequence[tuple[float, T]]) -> T:
        weights = [weight for weight, _ in choices]
        return self._random.choices([one for _, one in choices], weights)[0]

    def shuffled(self, count: int) -> list[int]:
        order = list(range(count))
        self._random.shuffle(order)
        return order

    def normal(self, *shape: int) -> Tensor:
        return torch.randn(shape, generator=self._tensors, dtype=torch.float64)

    def integers(self, high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=self._tensors)

    def fill(self, model: nn.Module, gain: float) -> None:
        """Give every parameter and running statistic a value of our own drawing.

        Torch's own initialization draws from the global generator, so what it drew is
        overwritten.
        """
        with torch.no_grad():
            for parameter in model.parameters():
                fan = parameter[0].numel() if parameter.ndim >= 2 else 4
                scale = gain / max(fan, 1) ** 0.5
                parameter.copy_(scale * self.normal(*parameter.shape))
                if parameter.ndim == 1 and self.chance(0.3):
                    parameter.add_(1.0)
            for name, buffer in model.named_buffers():
                if name.endswith("running_mean"):
                    buffer.copy_(0.3 * self.normal(*buffer.shape))
                elif name.endswith("running_var"):
                    buffer.copy_(0.5 + self.normal(*buffer.shape).square())
