"""A clock that tests move, in place of the real one."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from flatgauge.curvature.operator import DenseOperator
from flatgauge.vectors import Params


class Clock:
    """Seconds that pass only where a test lets them."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class SlowOperator(DenseOperator):
    """A matrix whose products take a second each."""

    def __init__(self, matrix: Tensor, clock: Clock):
        super().__init__(matrix)
        self.clock = clock

    def _apply(self, vectors: list[Params]) -> list[Params]:
        self.clock.now += len(vectors)
        return super()._apply(vectors)


class SlowLayer(nn.Module):
    """Passes its input on; a forward pass takes a second, and may do something else."""

    def __init__(self, clock: Clock):
        super().__init__()
        self.tick = clock_holder(clock)

    def forward(self, x: Tensor) -> Tensor:
        self.tick()
        return x


class clock_holder:
    """Survives the copy of a model: every copy moves the same clock."""

    def __init__(self, clock: Clock):
        self.clock = clock
        self.action = None

    def __call__(self) -> None:
        self.clock.now += 1
        if self.action is not None:
            self.action()

    def __deepcopy__(self, memo: dict) -> clock_holder:
        return self


def spectrum(size: int, seed: int = 0) -> Tensor:
    """A symmetric matrix with a few large eigenvalues."""
    random = torch.Generator().manual_seed(seed)
    draws = torch.randn(size, size, generator=random, dtype=torch.float64)
    basis = torch.linalg.qr(draws)[0]
    values = torch.cat(
        [torch.tensor([9.0, 7.0, -3.0]), torch.rand(size - 3, generator=random)]
    )
    return basis @ torch.diag(values.double()) @ basis.T
