"""Disjoint images of a box along an orbit: why the flat region has infinite volume."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.shapes import Float
from flatgauge.solvers.volume import Loss
from flatgauge.vectors import Params, generator, scale

HALVINGS = 200


def inscribed_box(
    loss: Loss,
    space: Params,
    level: float,
    start: float,
    *,
    corners: Sequence[Params] = (),
    points: int = 64,
    seed: int = 0,
) -> float:
    """The half-width of a cube around 0 that seems to lie in {loss < level}.

    It is halved until every tried point is inside: `points` random corners and as many
    random interior points of the cube, and the given corners. That is evidence, not a
    proof. 0 if none is found.

    Args:
        loss: of a displacement.
        space: names, shapes and dtypes of a displacement.
        level: of the set.
        start: the largest half-width to try.
        corners: vectors whose signs name corners to try, such as the gradient.
        points: how many random corners and random interior points.
        seed: of the draw.
    """
    random = generator(seed)

    def uniform(tensor: Tensor) -> Tensor:
        draw = torch.rand(tensor.shape, generator=random, dtype=torch.float64)
        return (2 * draw - 1).to(tensor)

    inner = [{n: uniform(t) for n, t in space.items()} for _ in range(points)]
    outer = [{n: uniform(t).sign() for n, t in space.items()} for _ in range(points)]
    given = [{n: t.sign() for n, t in corner.items()} for corner in corners]
    width = start
    for _ in range(HALVINGS):
        if all(loss(scale(one, width)) < level for one in [*given, *outer, *inner]):
            return width
        width /= 2
    return 0.0


@dataclass(frozen=True)
class OrbitSum:
    """Disjoint images of a box under powers of one rescaling, and their total volume.

    Attributes:
        power: the exponent that makes the images disjoint.
        log_determinant: ln |det T| of the rescaling with that exponent, at least 0.
        totals: (number of images, logarithm of their total volume).
    """

    power: float
    log_determinant: float
    totals: list[tuple[int, float]]


def orbit_sum(
    point: Float[Tensor, " n"],
    log_scales: Float[Tensor, " n"],
    half_width: float,
    counts: Sequence[int] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024),
) -> OrbitSum | None:
    """The total volume of the boxes T^k(box), k = 0, 1, ..., which do not meet.

    The box has its centre at θ. T scales coordinate i by exp(t s_i), with the sign of t
    such that det T >= 1. Where |θ_i| > h and t |s_i| >= ln((|θ_i| + h) / (|θ_i| − h)), an
    image's interval in coordinate i begins where the one before ends, so that no two
    meet; t is the smallest for which some i has that. Each box is det T times as large
    as the one before, so the sum has no bound (Dinh et al. 2017, Theorem 1).

    Args:
        point: θ.
        log_scales: s, a direction of a group of rescalings.
        half_width: h of the box.
        counts: the numbers of images.

    Returns:
        None if no coordinate separates the images.

    >>> import torch
    >>> point, line = torch.tensor([3.0, 1.0]).double(), torch.tensor([1.0, -1.0]).double()
    >>> found = orbit_sum(point, line, half_width=0.5, counts=(1, 8))
    >>> [(count, round(math.exp(total), 9)) for count, total in found.totals]
    [(1, 1.0), (8, 8.0)]
    """
    sizes, rates = point.double().abs(), log_scales.double()
    usable = (sizes > half_width) & (rates != 0)
    if not bool(usable.any()) or half_width <= 0:
        return None
    gaps = torch.log((sizes + half_width) / (sizes - half_width))[usable]
    # A hair more, so that rounding cannot make two boxes meet.
    power = float((gaps / rates[usable].abs()).min()) * (1 + 1e-9)
    total_rate = math.fsum(rates.tolist())
    power = -power if total_rate < 0 else power
    step = power * total_rate
    box = point.numel() * math.log(2 * half_width)
    totals = [
        (count, box + float(torch.logsumexp(step * torch.arange(count).double(), 0)))
        for count in counts
    ]
    return OrbitSum(power, step, totals)
