"""Where the samples of a batch are in what an operation returns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Dimension `dim` holds [ahead, count, behind]: positions, samples, positions."""

    dim: int
    ahead: int
    count: int

    def samples_first(self, tensor: Tensor) -> Tensor:
        """[count, ...]: the same dimensions follow, where `dim` has positions only.

        >>> Layout(dim=1, ahead=1, count=4).samples_first(torch.ones(3, 4, 5)).shape
        torch.Size([4, 3, 1, 5])
        >>> Layout(dim=0, ahead=3, count=4).samples_first(torch.ones(12, 5)).shape
        torch.Size([4, 3, 5])
        """
        apart = tensor.unflatten(self.dim, (self.ahead, self.count, -1))
        return apart.movedim(self.dim + 1, 0).flatten(self.dim + 1, self.dim + 2)


def layouts(shape: torch.Size, dims: Iterable[int], count: int) -> Iterator[Layout]:
    """All that a shape allows: samples in some of these dimensions, then behind others."""
    fitting = [dim for dim in dims if shape.numel() and shape[dim] % count == 0]
    for dim in fitting:
        yield Layout(dim, 1, count)
    for dim in fitting:
        if shape[dim] > count > 1:
            yield Layout(dim, shape[dim] // count, count)
