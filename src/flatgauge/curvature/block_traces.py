"""The traces of the Hessian's diagonal blocks, one for each parameter tensor."""

from __future__ import annotations

import torch
from torch import Tensor

from flatgauge.curvature.hessian import Hessian
from flatgauge.vectors import generator, map_tensors, multiply, rademacher

# Random vectors that are multiplied in one pass over the data.
TOGETHER = 8


def block_traces(hessian: Hessian, probes: int, seed: int) -> list[dict[str, float]]:
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
        For each product the traces by name.
    """
    space, random = hessian.space, generator(seed)
    d = map_tensors(_typical, space)
    found: list[dict[str, float]] = []
    for start in range(0, probes, TOGETHER):
        count = min(TOGETHER, probes - start)
        drawn = [rademacher(space, random) for _ in range(count)]
        images = hessian @ [multiply(signs, d) for signs in drawn]
        for signs, image in zip(drawn, images, strict=True):
            sums = torch.stack(
                [(signs[n].double() * image[n].double() / d[n]).sum() for n in space]
            )
            found.append(dict(zip(space, sums.tolist(), strict=True)))
    return found


def _typical(tensor: Tensor) -> Tensor:
    typical = tensor.double().square().mean().sqrt().to(tensor)
    return torch.where(typical > 0, typical, torch.ones_like(typical))
