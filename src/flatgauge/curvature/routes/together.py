"""Several vectors in one pass, by vmap."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import grad, vmap

from flatgauge.curvature.forward import jvp
from flatgauge.curvature.operator import BatchProduct
from flatgauge.curvature.routes.route import Route
from flatgauge.data import Batch
from flatgauge.objective import Objective
from flatgauge.vectors import Params

# More at a time were slower, and take more memory.
AT_A_TIME = 8


class Together(Route):
    """H V for up to eight vectors at a time: what they share is computed once."""

    name = "together"
    fewest = 4

    def prepare(self, objective: Objective, batch: Batch) -> BatchProduct:
        """Nothing to prepare: the vectors of a call run together."""

        def total(params: Params) -> Tensor:
            return objective.batch_total(params, batch)

        def product(vector: Params) -> Params:
            return jvp(grad(total), (objective.parameters,), (vector,))[1]

        def products(vectors: list[Params]) -> list[Params]:
            images: list[Params] = []
            for start in range(0, len(vectors), AT_A_TIME):
                some = vectors[start : start + AT_A_TIME]
                stacked = {n: torch.stack([v[n] for v in some]) for n in some[0]}
                found = vmap(product)(stacked)
                images += [
                    {n: t[i] for n, t in found.items()} for i in range(len(some))
                ]
            return images

        return products
