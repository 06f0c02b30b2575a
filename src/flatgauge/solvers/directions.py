"""Random directions, uniform on the sphere, that follow a permutation of the units."""

from __future__ import annotations

import torch

from flatgauge.vectors import Params, gaussian, generator, norm, scale


def random_directions(
    space: Params, count: int, seed: int, order: Params | None = None
) -> list[Params]:
    """Unit vectors, independent and uniform on the sphere.

    With `order`, the k-th number drawn for a tensor goes to the entry that is the k-th
    smallest in that tensor of `order`. The distribution stays the same, but a
    permutation of the network's units now permutes every direction along with the
    parameters (where no two entries of a tensor are equal), and scaling a whole tensor
    changes nothing, so that a result does not depend on how the units are numbered.

    Args:
        space: names, shapes and dtypes.
        count: how many.
        seed: of the draw.
        order: the vector whose entries decide the order; the order of storage if None.

    >>> import torch
    >>> point = {"w": torch.tensor([3.0, 1.0, 2.0])}
    >>> swapped = {"w": point["w"][[1, 0, 2]]}
    >>> (first,) = random_directions(point, 1, seed=0, order=point)
    >>> (second,) = random_directions(point, 1, seed=0, order=swapped)
    >>> bool((first["w"][[1, 0, 2]] == second["w"]).all())
    True
    """
    random = generator(seed)
    draws = [gaussian(space, random) for _ in range(count)]
    tiny = torch.finfo(torch.float64).tiny
    # Before they are put in order, which would change the rounding of the norm.
    units = [scale(draw, 1 / float(norm(draw).clamp_min(tiny))) for draw in draws]
    if order is None:
        return units
    # Two stable sorts: the rank of every entry within its tensor.
    ranks = {
        name: tensor.reshape(-1).argsort(stable=True).argsort()
        for name, tensor in order.items()
    }
    return [
        {name: t.reshape(-1)[ranks[name]].view(t.shape) for name, t in unit.items()}
        for unit in units
    ]
