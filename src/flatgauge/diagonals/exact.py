"""Exact diagonals: by squared gradients, or by a product for each parameter."""

from __future__ import annotations

from functools import reduce

import torch

from flatgauge.curvature.hessian import Hessian
from flatgauge.curvature.samples import batch_generator
from flatgauge.data import Batch
from flatgauge.diagonals.hutchinson import typical
from flatgauge.diagonals.moments import Estimate
from flatgauge.diagonals.output_probes import output_probes
from flatgauge.diagonals.per_sample import SquaredGradients
from flatgauge.diagonals.shares import by_slot
from flatgauge.losses import RowLoss, row_loss
from flatgauge.objective import Objective
from flatgauge.shards import added, largest_entry, plain
from flatgauge.vectors import (
    Params,
    add,
    dealt_like,
    ravel,
    scale,
    size,
    unit_columns,
    unravel,
)

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
    units_of = ravel({n: typical(t).expand_as(t) for n, t in space.items()})
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
        sizes = torch.maximum(sizes, ravel(dealt_like(terms, space)))
    rounding = ENTRY_ROUNDINGS * hessian.rounding * sizes
    return unravel(diagonal, space), unravel(rounding, space)


def _term_sizes(objective: Objective) -> Params:
    """The diagonal of (1/N) Σ_rows Jᵀ |∇²_f ℓ| J, about: one or two backwards a probe."""

    def sizes_of(batch: Batch) -> Params:
        random = batch_generator(0, batch)
        probes = output_probes(objective, batch, SIZE_PROBES, random, negative=1.0)
        return reduce(add, probes)

    share = 1 / (SIZE_PROBES * objective.sample_count)
    return scale(objective.sum(sizes_of), share)
