"""Which entries of a balancing problem stay, and which can be scaled to nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from flatgauge.shapes import Bool, Float, Int

SPREADS = 8
"""Sweeps over the matrix in which a connected pattern must have been walked through."""


@dataclass(frozen=True)
class Support:
    """The part of a balancing problem that contributes to its infimum.

    Everything lives where the patterns do.

    Attributes:
        rows: indices of the rows that have entries left.
        columns: likewise.
        row_labels: the component of each of these rows, numbered from 0.
        column_labels: likewise.
        components: how many there are.
        attained: whether no positive entry was dropped.
        row_limits: the limit of each row's log scale: +-inf for a dead row, else 0.
        column_limits: likewise.
    """

    rows: Int[Tensor, " live_rows"]
    columns: Int[Tensor, " live_columns"]
    row_labels: Int[Tensor, " live_rows"]
    column_labels: Int[Tensor, " live_columns"]
    components: int
    attained: bool
    row_limits: Float[Tensor, " rows"]
    column_limits: Float[Tensor, " columns"]

    def part(self, matrix: Tensor) -> Tensor:
        """The entries that stay, 0 for the others; the matrix itself where all do."""
        matrix = _block(matrix, self.rows, self.columns)
        if self.components > 1:
            matrix = matrix * (self.row_labels[:, None] == self.column_labels)
        return matrix


def find_support(
    upper: Bool[Tensor, "rows columns"], lower: Bool[Tensor, "rows columns"]
) -> Support:
    """Find the strongly connected components of a balancing problem.

    Let row i point to column j where alpha_ij > 0, and column j to row i where
    beta_ij > 0. An entry on no cycle of this graph can be scaled to 0 at no cost, so the
    infimum is the sum over the strongly connected components, and it is attained if and
    only if no entry lies between them. Only exact zeros count as missing: any other
    threshold would not be invariant under rescaling.

    What is left once dead rows and columns are gone is one component if the first row
    reaches everything and everything reaches it, which a few sweeps show where the
    matrices live. Only patterns for which they do not go to SciPy, on the host.

    Args:
        upper: where alpha > 0.
        lower: where beta > 0.
    """
    row_limits, column_limits = _peel(upper, lower)
    rows, columns = (
        torch.nonzero(limits == 0.0).squeeze(1)
        for limits in (row_limits, column_limits)
    )
    live = _block(upper, rows, columns), _block(lower, rows, columns)
    row_labels, column_labels = torch.zeros_like(rows), torch.zeros_like(columns)
    components = min(len(rows), 1)
    if components and not is_connected(*live):
        row_labels, column_labels = _label(*live)
        # Rows or columns alone in their component have no cycle.
        shared = row_labels.unique()
        shared = shared[torch.isin(shared, column_labels)]
        in_rows = torch.isin(row_labels, shared)
        in_columns = torch.isin(column_labels, shared)
        rows, columns = rows[in_rows], columns[in_columns]
        row_labels = torch.searchsorted(shared, row_labels[in_rows])
        column_labels = torch.searchsorted(shared, column_labels[in_columns])
        components = len(shared)
    support = Support(
        rows=rows,
        columns=columns,
        row_labels=row_labels,
        column_labels=column_labels,
        components=components,
        attained=True,
        row_limits=row_limits,
        column_limits=column_limits,
    )
    kept = all(
        int(support.part(part).count_nonzero()) == int(part.count_nonzero())
        for part in (upper, lower)
    )
    return replace(support, attained=kept)


def is_connected(
    upper: Bool[Tensor, "rows columns"], lower: Bool[Tensor, "rows columns"]
) -> bool:
    """Whether a few sweeps prove that all rows and columns are one component."""
    # With the arrows turned, what the first row reaches is what reaches it.
    return _reaches_all(upper, lower) and _reaches_all(lower, upper)


def _reaches_all(upper: Tensor, lower: Tensor) -> bool:
    columns, before = upper[0], -1
    for _ in range(SPREADS):
        rows = _any(lower, columns, 0)
        reached = int(rows.sum() + columns.sum())
        if reached == sum(upper.shape):
            return True
        if reached == before:
            return False
        columns, before = columns | _any(upper, rows, 1), reached
    return False


def _peel(upper: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
    # A row without alpha is scaled up until its beta vanishes, one without beta down;
    # that can leave a column without one of the two, and so on.
    limits = [upper.new_zeros(size, dtype=torch.float64) for size in upper.shape]
    alive = [upper.new_ones(size) for size in upper.shape]
    changed = True
    while changed:
        changed = False
        for axis in (0, 1):
            ups, downs = (_any(part, alive[1 - axis], axis) for part in (upper, lower))
            dead = alive[axis] & ~(ups & downs)
            limits[axis][dead & downs] = math.inf
            limits[axis][dead & ups] = -math.inf
            limits[axis][dead & ~ups & ~downs] = math.nan
            alive[axis] &= ~dead
            changed |= bool(dead.any())
    return limits[0], limits[1]


def _any(pattern: Tensor, chosen: Tensor, axis: int) -> Tensor:
    """Whether each row (axis 0) or column (axis 1) has an entry among the chosen."""
    if not bool(chosen.all()):
        pattern = pattern & chosen.unsqueeze(axis)
    return pattern.any(1 - axis)


def _block(matrix: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """The entries in these rows and columns; no copy where that is all of them."""
    if len(rows) < matrix.shape[0]:
        matrix = matrix[rows]
    return matrix[:, columns] if len(columns) < matrix.shape[1] else matrix


def _label(upper: Tensor, lower: Tensor) -> tuple[Tensor, Tensor]:
    count, width = upper.shape
    tails, heads = upper.cpu().numpy().nonzero()
    back_heads, back_tails = lower.cpu().numpy().nonzero()
    sources = np.concatenate([tails, back_tails + count])
    targets = np.concatenate([heads + count, back_heads])
    edges = coo_array((np.ones(len(sources)), (sources, targets)), (count + width,) * 2)
    _, labels = connected_components(edges.tocsr(), connection="strong")
    found = torch.from_numpy(labels.astype(np.int64)).to(upper.device)
    return found[:count], found[count:]
