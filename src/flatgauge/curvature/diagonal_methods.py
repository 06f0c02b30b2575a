"""The ways to the diagonal, each a function that returns named vectors.

The random ones return the mean over probes and its standard error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.curvature.hessian import Hessian
from flatgauge.curvature.per_sample import SquaredGradients
from flatgauge.curvature.slots import Pass, by_slot
from flatgauge.data import Batch
from flatgauge.deadline import OutOfTime
from flatgauge.losses import RowLoss, row_loss
from flatgauge.losses.loss import Rows
from flatgauge.objective import Objective
from flatgauge.vectors import (
    Params,
    add,
    check_finite,
    gaussian,
    generator,
    gradient_of,
    map_tensors,
    multiply,
    rademacher,
    ravel,
    scale,
    size,
    unravel,
    zeros_like,
)

Estimate = tuple[Params, Params]
# Basis vectors, and random ones, multiplied in one pass over the data.
TOGETHER = 64
# Roundings of a product that an entry of the diagonal may carry.
ROUNDINGS = 4.0
PROBES_TOGETHER = 8


def exact_diagonal(objective: Objective) -> Params:
    """diag(G) = (1/N) Σ_rows Σ_k s_k (Jᵀ c_k)², with ∇²_f ℓ = Σ_k s_k c_k c_kᵀ.

    Where positive and negative shares cancel to within rounding of their sum, the entry
    is 0: that rule is equivariant under rescaling, which a threshold on |h| is not.
    """
    loss = objective.loss
    signed = isinstance(loss, RowLoss) and not loss.convex
    squares = SquaredGradients(objective, signed=signed)

    def passes(rows: Rows) -> Iterator[Pass]:
        return by_slot(rows, *squares.loss.hessian_columns(rows))

    plus, minus = squares.parts(passes)
    rounding = 500 * torch.finfo(objective.dtype).eps
    diagonal = add(plus, minus, -1.0)
    shares = add(plus, minus)
    return {
        name: torch.where(h.abs() <= rounding * shares[name], 0.0, h)
        for name, h in diagonal.items()
    }


def basis_diagonal(hessian: Hessian) -> Estimate:
    """h_i = eᵢᵀ H eᵢ, one product for each parameter, and what rounding may have made.

    A curvature that is 0 comes out as rounding of what it was computed from, and roots
    make that larger. In units of each tensor's root mean square, that is taken as a
    fraction of the largest entry of H, or of the loss if that is more.
    """
    space = hessian.space
    count, flat = size(space), ravel(space)
    units_of = ravel(map_tensors(_typical, space))
    diagonal = torch.zeros_like(flat)
    largest = flat.new_tensor(abs(hessian.objective.value()))
    for start in range(0, count, TOGETHER):
        stop = min(start + TOGETHER, count)
        units = torch.zeros(count, stop - start, dtype=flat.dtype, device=flat.device)
        units[range(start, stop), range(stop - start)] = 1
        columns = hessian.multiply_flat(units)
        diagonal[start:stop] = columns[start:stop].diagonal()
        scaled = columns * units_of[:, None] * units_of[start:stop]
        largest = torch.maximum(largest, scaled.abs().max())
    rounding = ROUNDINGS * hessian.rounding * largest / units_of.square()
    return unravel(diagonal, space), unravel(rounding, space)


def probe_diagonal(objective: Objective, probes: int, seed: int) -> Estimate:
    """diag(G) from ĥ = (1/N)(∇_θ Σ_rows⟨f, S u⟩)², with S Sᵀ = ∇²_f ℓ and u = ±1.

    One ordinary backward a probe; where ∇²_f ℓ is indefinite, one for its positive and
    one for its negative part, which is subtracted.
    """
    loss = row_loss(objective.loss, "probes in output space need")
    random = generator(seed)

    def moments_of(batch: Batch) -> tuple[Params, Params]:
        point = objective.leaves()
        rows = loss.rows(*objective.evaluate(point, batch))
        # Batches draw their signs independently, so their variances add up.
        moments = _Moments(objective.parameters)
        for _ in range(probes):
            plus, minus = loss.hessian_probe(rows, random)
            share = _squared_pull(rows.outputs, point, plus)
            if minus is not None:
                share = add(share, _squared_pull(rows.outputs, point, minus), -1.0)
            moments.add(share)
        return moments.mean(), moments.variance_of_mean()

    mean, variance = objective.sum(moments_of)
    check_finite(mean, "diagonal")
    share = 1 / objective.sample_count
    return scale(mean, share), scale(map_tensors(torch.sqrt, variance), share)


def hutchinson_diagonal(
    hessian: Hessian, probes: int, seed: int, scaled: bool
) -> Estimate:
    """ĥ = ε ∘ H(d ∘ ε) / d with random signs ε, and d = |W| or 1.

    Where W is 0, d is the root mean square of its tensor.
    """
    (moments,), stop = _hutchinson(hessian, probes, [seed], scaled)
    if stop is not None:
        raise stop
    return moments.mean(), map_tensors(torch.sqrt, moments.variance_of_mean())


def hutchinson_replicates(
    hessian: Hessian, probes: int, seeds: Sequence[int]
) -> tuple[list[Params], OutOfTime | None]:
    """Independent estimates of the same kind, scaled, one for each seed.

    Their probes take turns, so that where time runs out all of them have some; those
    that have none are left out.
    """
    found, stop = _hutchinson(hessian, probes, seeds, scaled=True)
    return [one.mean() for one in found if one.count], stop


def _hutchinson(
    hessian: Hessian, probes: int, seeds: Sequence[int], scaled: bool
) -> tuple[list[_Moments], OutOfTime | None]:
    space = hessian.space
    d = map_tensors(_own_scale if scaled else torch.ones_like, space)
    inverse = map_tensors(torch.reciprocal, d)
    # The spread of several is that between them.
    found = [_Moments(space, spread=len(seeds) == 1) for _ in seeds]
    turns = [*zip(found, map(generator, seeds), strict=True)] * probes
    while turns:
        count = deadline.fitting(min(PROBES_TOGETHER, len(turns)))
        drawn = [rademacher(space, random) for _, random in turns[:count]]
        try:
            images = hessian @ [multiply(signs, d) for signs in drawn]
        except OutOfTime as stop:
            return found, stop
        for (moments, _), signs, image in zip(turns, drawn, images, strict=False):
            moments.add(multiply(multiply(signs, image), inverse))
        del turns[:count]
        if sum(one.count > 0 for one in found) > 1:
            deadline.usable()
    return found, None


def finite_difference_diagonal(
    objective: Objective, probes: int, seed: int, relative_step: float
) -> Estimate:
    """ĥ_l = ε ∘ [∇_l L(θ + r_l ε) − ∇_l L(θ − r_l ε)] / (2 r_l), tensor by tensor.

    Tsuzuku et al. 2019, equations 60 and 61, with Gaussian ε on one tensor l at a time
    and r_l = `relative_step` times its root mean square, which makes the estimate
    equivariant under rescaled layers. On networks with kinks it is the diagonal of the
    Hessian of a smoothed loss, not of L.
    """
    space = objective.parameters
    random = generator(seed)

    def slope(name: str, moved: Tensor) -> Tensor:
        def term(batch: Batch) -> Tensor:
            leaf = {name: moved.detach().requires_grad_()}
            value = objective.batch_total({**space, **leaf}, batch)
            return gradient_of(value, leaf)[name]

        return objective.sum(term) / objective.sample_count

    def estimate() -> Params:
        found = {}
        for name, direction in gaussian(space, random).items():
            tensor = space[name]
            step = relative_step * (float(tensor.square().mean().sqrt()) or 1.0)
            above = slope(name, tensor + step * direction)
            below = slope(name, tensor - step * direction)
            found[name] = direction * (above - below) / (2 * step)
        return found

    moments = _Moments(space)
    for _ in range(probes):
        moments.add(estimate())
    return moments.mean(), map_tensors(torch.sqrt, moments.variance_of_mean())


class _Moments:
    """Mean and variance over probes, entry by entry, in the memory of two vectors."""

    def __init__(self, space: Params, spread: bool = True):
        self.count = 0
        self._mean = zeros_like(space)
        self._spread = zeros_like(space) if spread else {}

    def add(self, sample: Params) -> None:
        self.count += 1
        for name, value in sample.items():
            before = value - self._mean[name]
            self._mean[name] += before / self.count
            if self._spread:
                self._spread[name] += before * (value - self._mean[name])

    def mean(self) -> Params:
        return self._mean

    def variance_of_mean(self) -> Params:
        return scale(self._spread, 1 / (self.count * (self.count - 1)))


def _squared_pull(outputs: Tensor, point: Params, vectors: Tensor) -> Params:
    if not outputs.requires_grad:
        return zeros_like(point)
    pulled = torch.autograd.grad(
        outputs,
        list(point.values()),
        vectors,
        retain_graph=True,
        allow_unused=True,
        materialize_grads=True,
    )
    return {name: p.square() for name, p in zip(point, pulled, strict=True)}


def _typical(tensor: Tensor) -> Tensor:
    """The root mean square in every place, or 1 where that is 0."""
    typical = tensor.square().mean().sqrt()
    return torch.where(typical > 0, typical, 1.0).expand_as(tensor)


def _own_scale(tensor: Tensor) -> Tensor:
    return torch.where(tensor == 0, _typical(tensor), tensor.abs())
