"""The ways to the diagonal and to the traces of its blocks.

A way to the diagonal returns named vectors: the random ones the mean over probes and its
standard error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from itertools import islice

import torch
from torch import Tensor

from flatgauge import deadline
from flatgauge.curvature.hessian import Hessian
from flatgauge.curvature.jacobian import pulled_back
from flatgauge.curvature.per_sample import SquaredGradients
from flatgauge.curvature.samples import batch_generator
from flatgauge.curvature.shares import by_slot
from flatgauge.data import Batch
from flatgauge.deadline import OutOfTime
from flatgauge.draws import while_time_lasts
from flatgauge.losses import RowLoss, row_loss
from flatgauge.objective import Objective
from flatgauge.shards import added, cut, joined, largest_entry, plain
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
    unit_columns,
    unravel,
    zeros_like,
)

Estimate = tuple[Params, Params]
# Basis vectors multiplied in one pass over the data.
UNITS_TOGETHER = 64
# Roundings of a product that an entry of the diagonal may carry: a few, since several
# terms as large as the largest entry of H may have cancelled in it.
ENTRY_ROUNDINGS = 4.0
# Probes that tell how large the terms of an entry are, to well within a factor of 10.
SIZE_PROBES = 8


def exact_diagonal(objective: Objective) -> Params:
    """diag(G) = (1/N) Σ_rows Σ_k s_k (Jᵀ c_k)², with ∇²_f ℓ = Σ_k s_k c_k c_kᵀ.

    Where positive and negative shares cancel to within rounding of their sum, the entry
    is 0: that rule is equivariant under rescaling, which a threshold on |h| is not.
    """
    loss = row_loss(objective.loss, "per-sample derivatives need")
    squares = SquaredGradients(objective, signed=not loss.convex)
    plus, minus = squares.parts(lambda rows: by_slot(rows, *loss.hessian_columns(rows)))
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
    make that larger. That is taken as a fraction of the largest entry of H in units of
    each tensor's root mean square, of the loss if that is more, and of the terms of the
    entry itself, if these are more: an output that does not depend on the scale of a
    small weight w has terms of 1/w² that cancel.
    """
    space = hessian.space
    count, flat = size(space), ravel(space)
    units_of = ravel({n: _typical(t).expand_as(t) for n, t in space.items()})
    diagonal = torch.zeros_like(flat)
    largest = plain(flat).new_tensor(abs(hessian.objective.value()))
    matrix = hessian.as_matrix(instead_of=count)
    for start in range(0, count, UNITS_TOGETHER):
        stop = min(start + UNITS_TOGETHER, count)
        if matrix is not None:
            diagonal[start:stop] = matrix.diagonal()[start:stop]
            scaled = matrix[start:stop] * units_of * units_of[start:stop, None]
        else:
            units = unit_columns(space, start, stop)
            columns = hessian.multiply_flat(units)
            diagonal += plain(units * columns).sum(1)
            own = added(plain(units_of) @ plain(units), units)
            scaled = columns * units_of[:, None] * own
        largest = torch.maximum(largest, largest_entry(scaled))
    sizes = units_of.square().reciprocal() * largest
    if isinstance(hessian.objective.loss, RowLoss) and hessian.objective.fits_whole:
        terms = _term_sizes(hessian.objective.whole())
        dealt = {name: cut(terms[name], tensor) for name, tensor in space.items()}
        sizes = torch.maximum(sizes, ravel(dealt))
    rounding = ENTRY_ROUNDINGS * hessian.rounding * sizes
    return unravel(diagonal, space), unravel(rounding, space)


def _term_sizes(objective: Objective) -> Params:
    """The diagonal of (1/N) Σ_rows Jᵀ |∇²_f ℓ| J, about: one or two backwards a probe."""

    def sizes_of(batch: Batch) -> Params:
        random = batch_generator(0, batch)
        probes = _output_probes(objective, batch, SIZE_PROBES, random, negative=1.0)
        return reduce(add, probes)

    share = 1 / (SIZE_PROBES * objective.sample_count)
    return scale(objective.sum(sizes_of), share)


def _output_probes(
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
    for plus, minus in islice(loss.hessian_probes(rows, random), count):
        share = _squared_pull(rows.outputs, point, plus)
        if minus is not None:
            share = add(share, _squared_pull(rows.outputs, point, minus), negative)
        yield share


def probe_diagonal(objective: Objective, probes: int, seed: int) -> Estimate:
    """diag(G) from ĥ = (1/N)(∇_θ Σ_rows⟨f, S u⟩)², with S Sᵀ = ∇²_f ℓ and u = ±1.

    One ordinary backward per probe; where ∇²_f ℓ is indefinite, one for its positive and
    one for its negative part, which is subtracted.
    """

    def moments_of(batch: Batch) -> tuple[Params, Params]:
        # Batches draw their signs independently, so their variances add up.
        random = batch_generator(seed, batch)
        moments = Moments(objective.parameters)
        for share in _output_probes(objective, batch, probes, random, negative=-1.0):
            moments.add(share)
        return moments.mean, moments.variance_of_mean()

    mean, variance = objective.sum(moments_of)
    check_finite(mean, "diagonal")
    share = 1 / objective.sample_count
    return scale(mean, share), scale(map_tensors(torch.sqrt, variance), share)


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
    d = map_tensors(lambda tensor: _typical(tensor, torch.float64), space)

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

    def entries(name: str, direction: Tensor) -> Tensor:
        tensor = space[name]
        step = relative_step * (float(tensor.square().mean().sqrt()) or 1.0)
        above = slope(name, tensor + step * direction)
        below = slope(name, tensor - step * direction)
        return direction * (above - below) / (2 * step)

    moments = Moments(space)
    for _ in range(probes):
        drawn = gaussian(space, random)
        moments.add({name: entries(name, drawn[name]) for name in space})
    return moments.estimate()


class Moments:
    """Mean and variance over probes, entry by entry, in the memory of two vectors."""

    def __init__(self, space: Params, spread: bool = True):
        self.count = 0
        self.mean = zeros_like(space)
        self._spread = zeros_like(space) if spread else {}

    def add(self, sample: Params) -> None:
        """Take another estimate into account."""
        self.count += 1
        for name, value in sample.items():
            before = value - self.mean[name]
            self.mean[name] += before / self.count
            if self._spread:
                self._spread[name] += before * (value - self.mean[name])

    def variance_of_mean(self) -> Params:
        """The square of the standard error."""
        return scale(self._spread, 1 / (self.count * (self.count - 1)))

    def estimate(self) -> Estimate:
        """The mean and its standard error."""
        return self.mean, map_tensors(torch.sqrt, self.variance_of_mean())


def _squared_pull(outputs: Tensor, point: Params, vectors: Tensor) -> Params:
    if not outputs.requires_grad:
        return zeros_like(point)
    return map_tensors(torch.square, pulled_back(outputs, point, vectors))


def _typical(tensor: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """The root mean square, computed in some dtype, or 1 where that is 0."""
    typical = tensor.to(dtype or tensor.dtype).square().mean().sqrt().to(tensor)
    return torch.where(typical > 0, typical, 1.0)


def _own_scale(tensor: Tensor) -> Tensor:
    return torch.where(tensor == 0, _typical(tensor), tensor.abs())
