"""Diagonals and traces of blocks from products with random signs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.curvature.hessian import Hessian
from flatgauge.deadline import OutOfTime
from flatgauge.diagonals.moments import Moments
from flatgauge.draws import while_time_lasts
from flatgauge.shards import joined
from flatgauge.vectors import Params, generator, map_tensors, multiply, rademacher


def hutchinson(
    hessian: Hessian, probes: int, seeds: Sequence[int], scaled: bool
) -> tuple[list[Moments], OutOfTime | None]:
    """ĥ = ε ∘ H(d ∘ ε) / d with random signs ε, and d = |W| or 1, once for each seed.

    Where W is 0, d is the root mean square of its tensor. The probes of the seeds take
    turns, so that where time runs out all of them have some; what ended them before
    their last probe is returned, too.
    """
    space = hessian.space
    d = map_tensors(_own_scale if scaled else torch.ones_like, space)
    inverse = map_tensors(torch.reciprocal, d)
    # The spread of several is that between them.
    found = [Moments(space, spread=len(seeds) == 1) for _ in seeds]
    products = _probed(hessian, d, [generator(seed) for seed in seeds] * probes)
    try:
        for moments, (signs, image) in zip(found * probes, products, strict=True):
            moments.add(multiply(multiply(signs, image), inverse))
            if sum(one.count > 0 for one in found) > 1:
                deadline.usable()
    except OutOfTime as stop:
        return found, stop
    return found, None


def block_traces(
    hessian: Hessian, probes: int, seed: int
) -> tuple[list[dict[str, float]], OutOfTime | None]:
    """Independent unbiased estimates of every tr H_ll, one set for each product.

    With random signs ε and one scale d_l for each tensor, the root mean square of W_l,

        t_l = ε_lᵀ (H (d ∘ ε))_l / d_l,    E t_l = tr H_ll.

    Rescaled layers rescale d alike, so that they rescale the estimates exactly. Scales
    entry by entry would do that too, but a sum over a tensor pays dearly for them: the
    noise of its small entries is divided by their size. A tensor of zeros has d = 1.
    Where time runs out after two products, these are all, and what ended them is returned.
    """
    space = hessian.space
    d = map_tensors(lambda tensor: typical(tensor, torch.float64), space)

    def traces(signs: Params, image: Params) -> dict[str, float]:
        each = [(signs[n].double() * image[n].double() / d[n]).sum() for n in space]
        return dict(
            zip(space, torch.stack(list(map(joined, each))).tolist(), strict=True)
        )

    probed = _probed(hessian, d, [generator(seed)] * probes)
    return while_time_lasts(traces(*one) for one in probed)


def _probed(
    hessian: Hessian, d: Params, sources: list[torch.Generator]
) -> Iterator[tuple[Params, Params]]:
    """ε and H(d ∘ ε), with signs ε of each source in turn, some in one pass over the data."""
    while sources:
        count = deadline.fitting(hessian.at_a_time(len(sources)))
        drawn = [rademacher(hessian.space, random) for random in sources[:count]]
        images = hessian @ [multiply(signs, d) for signs in drawn]
        yield from zip(drawn, images, strict=True)
        sources = sources[count:]


def typical(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The root mean square, computed in some dtype, or 1 where that is 0."""
    typical = tensor.to(dtype or tensor.dtype).square().mean().sqrt().to(tensor)
    return torch.where(typical > 0, typical, 1.0)


def _own_scale(tensor: Tensor) -> Tensor:
    return torch.where(tensor == 0, typical(tensor), tensor.abs())
