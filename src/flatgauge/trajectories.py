"""Checkpoints in the plane of their first two principal directions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from flatgauge.errors import OptionError
from flatgauge.landscapes import Progress, check_buffers, losses_on
from flatgauge.objective import Objective
from flatgauge.provenance import provenance_of
from flatgauge.slices import Landscape
from flatgauge.vectors import Params, add, check_like, dot, scale

# How far the plane reaches beyond the checkpoints, as a share of their spread.
MARGIN = 0.25


def trajectory(
    checkpoints: Sequence[Objective] | Mapping[str, Objective],
    points: int = 31,
    progress: Progress | None = None,
) -> Landscape:
    """The loss on the plane that checkpoints lie in, or nearly.

    With θ_n the last checkpoint, the plane goes through it along the first two principal
    directions of θ_1 − θ_n, ..., θ_{n−1} − θ_n (Li et al. 2018, section 7), and each
    checkpoint is shown by its orthogonal projection. Three checkpoints, also of different
    runs, span their plane exactly. Only for nets of one architecture: neurons that changed
    places or scales between runs make a distance without meaning.

    Args:
        checkpoints: at least three of the same parameters, in their order, on the same
            data; the loss is that of the last one's objective. Those of a list are called
            1, 2, ...
        points: points along each axis.
        progress: called with (what, index, count) before each point.

    Raises:
        OptionError: for fewer than three checkpoints, or where they are on a line.
        VectorError: if their parameters do not fit.
    """
    if not isinstance(checkpoints, Mapping):
        checkpoints = {str(place): one for place, one in enumerate(checkpoints, 1)}
    if len(checkpoints) < 3:
        raise OptionError(
            "a plane needs at least three checkpoints: give more of them."
        )
    *others, last = checkpoints.values()
    for one in others:
        check_buffers(last, one)
    steps = [
        add(check_like(one.parameters, last.parameters), last.parameters, -1.0)
        for one in others
    ]
    basis, places, explained = _principal(steps)
    path = torch.cat([places, torch.zeros(1, 2, dtype=torch.float64)])
    axes = tuple(_axis(path[:, index], points) for index in (0, 1))
    losses = losses_on(last, basis, axes, progress)
    return Landscape(
        "The path in the plane of its principal directions",
        "trajectory",
        "none",
        ("first principal direction", "second principal direction"),
        axes,
        losses,
        path=tuple(map(tuple, path.tolist())),
        names=tuple(checkpoints),
        explained=explained,
        provenance=provenance_of(last, seed=0),
    )


def _principal(steps: list[Params]) -> tuple[list[Params], Tensor, float]:
    """Two orthonormal directions, the steps' coordinates along them, and their share.

    From the small matrix of inner products G = A Aᵀ, with A the steps as rows: for
    G u = s u the direction is Aᵀu / √s, and the coordinates are √s u.
    """
    products = [[float(dot(one, other)) for other in steps] for one in steps]
    sizes, vectors = torch.linalg.eigh(torch.tensor(products, dtype=torch.float64))
    sizes, vectors = sizes.flip(0)[:2], vectors.flip(1)[:, :2]
    whole = sum(row[place] for place, row in enumerate(products))
    if not float(sizes[1]) > 1e-12 * whole:
        raise OptionError(
            "the checkpoints lie on a line, or are all the same: use landscape between two."
        )
    basis = []
    for size, vector in zip(sizes.tolist(), vectors.T.tolist(), strict=True):
        total = scale(steps[0], vector[0] / size**0.5)
        for step, share in zip(steps[1:], vector[1:], strict=True):
            total = add(total, step, share / size**0.5)
        basis.append(total)
    return basis, vectors * sizes.sqrt(), float(sizes.sum()) / whole


def _axis(places: Tensor, points: int) -> Tensor:
    """Evenly spaced, beyond the checkpoints on both sides."""
    low, high = float(places.min()), float(places.max())
    room = MARGIN * (high - low)
    return torch.linspace(low - room, high + room, points, dtype=torch.float64)
