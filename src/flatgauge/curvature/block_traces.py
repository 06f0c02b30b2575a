"""The traces of the Hessian's diagonal blocks, one for each parameter tensor."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.curvature.hessian import Hessian
from flatgauge.deadline import OutOfTime
from flatgauge.vectors import generator, map_tensors, multiply, rademacher

# The fewest estimates that have a standard error.
LEAST = 2
# Random vectors that are multiplied in one pass over the data.
TOGETHER = 8


@dataclass(frozen=True)
class BlockTraces:
    """Estimates by name, one set for each product; `stopped` where time ended them."""

    samples: list[dict[str, float]]
    stopped: OutOfTime | None = None


def block_traces(hessian: Hessian, probes: int, seed: int) -> BlockTraces:
    """Independent unbiased estimates of every tr H_ll, one set for each product.

    With random signs ε and one scale d_l for each tensor, the root mean square of W_l,

        t_l = ε_lᵀ (H (d ∘ ε))_l / d_l,    E t_l = tr H_ll.

    Rescaled layers rescale d alike, so that they rescale the estimates exactly. Scales
    entry by entry would do that too, but a sum over a tensor pays dearly for them: the
    noise of its small entries is divided by their size. A tensor of zeros has d = 1.

    Args:
        hessian: the Hessian H.
        probes: how many products.
        seed: of the signs.

    Returns:
        For each product the traces by name, fewer if time runs out after two.
    """
    space, random = hessian.space, generator(seed)
    d = map_tensors(_typical, space)
    found: list[dict[str, float]] = []
    while len(found) < probes:
        count = deadline.fitting(min(TOGETHER, probes - len(found)))
        drawn = [rademacher(space, random) for _ in range(count)]
        try:
            images = hessian @ [multiply(signs, d) for signs in drawn]
        except OutOfTime as stop:
            if len(found) < LEAST:
                raise
            return BlockTraces(found, stop)
        for signs, image in zip(drawn, images, strict=True):
            sums = torch.stack(
                [(signs[n].double() * image[n].double() / d[n]).sum() for n in space]
            )
            found.append(dict(zip(space, sums.tolist(), strict=True)))
        if len(found) >= LEAST:
            deadline.usable()
    return BlockTraces(found)


def _typical(tensor: Tensor) -> Tensor:
    typical = tensor.double().square().mean().sqrt().to(tensor)
    return torch.where(typical > 0, typical, torch.ones_like(typical))
