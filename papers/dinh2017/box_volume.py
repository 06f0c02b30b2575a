"""The volume of a sublevel set, by sampling a box."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.errors import OptionError
from flatgauge.shapes import Float
from flatgauge.vectors import generator

# Cells of a stratified sample, and points of it that are held in memory at once.
CELLS, CHUNK = 1 << 22, 1 << 20


@dataclass(frozen=True)
class BoxVolume:
    """A volume with its standard error."""

    volume: float
    standard_error: float


def sublevel_volume(
    loss: Callable[[Float[Tensor, "samples n"]], Float[Tensor, " samples"]],
    low: Sequence[float],
    high: Sequence[float],
    level: float,
    samples: int = 1_000_000,
    seed: int = 0,
) -> BoxVolume:
    """The volume of {loss < level} inside a box, by stratified sampling.

    The box is cut into equal cells, as many as leave two points in each, and the points
    are uniform in their cells. The estimate is unbiased, and so is the square of its
    standard error.

    Args:
        loss: the losses of the rows of a matrix of points.
        low: the box's lower corner.
        high: its upper corner.
        level: of the set.
        samples: about how many points.
        seed: of the draw.

    Raises:
        OptionError: if the box is empty or there are fewer than two samples.

    >>> quarter = sublevel_volume(lambda x: x.norm(dim=1), (0.0, 0.0), (1.0, 1.0), 1.0)
    >>> abs(quarter.volume - math.pi / 4) < 3 * quarter.standard_error < 1e-3
    True
    """
    lower = torch.tensor(low, dtype=torch.float64)
    sides = torch.tensor(high, dtype=torch.float64) - lower
    if sides.ndim != 1 or not sides.numel() or bool((sides <= 0).any()) or samples < 2:
        raise OptionError(
            f"the box from {list(low)} to {list(high)} with {samples} samples: give a box "
            "with positive sides, and two samples at least."
        )
    dimension = sides.numel()
    per_axis = max(1, int(min(samples / 2, CELLS) ** (1 / dimension) + 1e-9))
    cells = per_axis**dimension
    each = max(2, samples // cells)
    random = generator(seed)
    radix = per_axis ** torch.arange(dimension)
    hits = torch.zeros(cells, dtype=torch.float64)
    for first in range(0, cells * each, CHUNK):
        cell = torch.arange(first, min(first + CHUNK, cells * each)) // each
        corner = cell[:, None] // radix % per_axis
        uniform = torch.rand(corner.shape, generator=random, dtype=torch.float64)
        inside = loss(lower + sides * (corner + uniform) / per_axis) < level
        hits.index_add_(0, cell, inside.double())
    shares = hits / each
    spread = float((shares * (1 - shares)).sum()) / (each - 1) / cells**2
    box = float(sides.prod())
    return BoxVolume(box * float(shares.mean()), box * math.sqrt(spread))
