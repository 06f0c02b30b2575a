"""Squared gradients along random vectors in the space of the outputs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor

from flatgauge.curvature.jacobian import pulled_back
from flatgauge.curvature.samples import batch_generator
from flatgauge.data import Batch
from flatgauge.diagonals.moments import Estimate, Moments
from flatgauge.losses import row_loss
from flatgauge.objective import Objective
from flatgauge.vectors import Params, add, check_finite, map_tensors, scale


def probe_diagonal(objective: Objective, probes: int, seed: int) -> Estimate:
    """diag(G) from ĥ = (1/N)(∇_θ Σ_rows⟨f, S u⟩)², with S Sᵀ = ∇²_f ℓ and u = ±1.

    One ordinary backward per probe; where ∇²_f ℓ is indefinite, one for its positive and
    one for its negative part, which is subtracted.
    """

    def moments_of(batch: Batch) -> tuple[Params, Params]:
        # Batches draw their signs independently, so their variances add up.
        random = batch_generator(seed, batch)
        moments = Moments(objective.parameters)
        for share in output_probes(objective, batch, probes, random, negative=-1.0):
            moments.add(share)
        return moments.mean, moments.variance_of_mean()

    mean, variance = objective.sum(moments_of)
    check_finite(mean, "diagonal")
    share = 1 / objective.sample_count
    return scale(mean, share), scale(map_tensors(torch.sqrt, variance), share)


def output_probes(
    objective: Objective,
    batch: Batch,
    count: int,
    random: torch.Generator,
    negative: float,
) -> Iterator[Params]:
    """(∇_θ Σ_rows⟨f, S u⟩)² for the positive part of ∇²_f ℓ = S Sᵀ − …, u = ±1.

    Where there is a negative part, `negative` times what it gives is added.
    """
    loss = row_loss(objective.loss, "probes in output space need")
    point = objective.leaves()
    rows = loss.rows(*objective.evaluate(point, batch))

    def squared(vectors: Tensor) -> Params:
        return map_tensors(torch.square, pulled_back(rows.outputs, point, vectors))

    for plus, minus in islice(loss.hessian_probes(rows, random), count):
        share = squared(plus)
        yield share if minus is None else add(share, squared(minus), negative)
