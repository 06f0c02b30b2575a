"""Which entries of a balancing problem stay, and which can be scaled to nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


@dataclass(frozen=True)
class Support:
    """The part of a balancing problem that contributes to its infimum.

    Attributes:
        rows: indices of the rows that have entries left.
        columns: likewise.
        row_labels: the component of each of these rows, numbered from 0.
        column_labels: likewise.
        attained: whether no positive entry was dropped.
        row_limits: the limit of each row's log scale: +-inf for a dead row, else 0.
        column_limits: likewise.
    """

    rows: np.ndarray
    columns: np.ndarray
    row_labels: np.ndarray
    column_labels: np.ndarray
    attained: bool
    row_limits: np.ndarray
    column_limits: np.ndarray


def find_support(upper: np.ndarray, lower: np.ndarray) -> Support:
    """Find the strongly connected components of a balancing problem.

    Let row i point to column j where alpha_ij > 0, and column j to row i where
    beta_ij > 0. An entry on no cycle of this graph can be scaled to 0 at no cost, so the
    infimum is the sum over the strongly connected components, and it is attained if and
    only if no entry lies between them. Only exact zeros count as missing: any other
    threshold would not be invariant under rescaling.

    Args:
        upper: where alpha > 0.
        lower: where beta > 0.
    """
    row_limits, column_limits = _peel(upper, lower)
    rows = np.flatnonzero(row_limits == 0.0)
    columns = np.flatnonzero(column_limits == 0.0)
    row_labels, column_labels = _label(
        upper[np.ix_(rows, columns)], lower[np.ix_(rows, columns)]
    )
    shared = np.intersect1d(row_labels, column_labels)
    in_rows, in_columns = np.isin(row_labels, shared), np.isin(column_labels, shared)
    rows, columns = rows[in_rows], columns[in_columns]
    row_labels = np.searchsorted(shared, row_labels[in_rows])
    column_labels = np.searchsorted(shared, column_labels[in_columns])
    inside = row_labels[:, None] == column_labels
    live = np.ix_(rows, columns)
    kept = (upper[live] & inside).sum() + (lower[live] & inside).sum()
    return Support(
        rows=rows,
        columns=columns,
        row_labels=row_labels,
        column_labels=column_labels,
        attained=bool(kept == upper.sum() + lower.sum()),
        row_limits=row_limits,
        column_limits=column_limits,
    )


def _peel(upper: np.ndarray, lower: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    # A row without alpha is scaled up until its beta vanishes, one without beta down;
    # that can leave a column without one of the two, and so on.
    limits = [np.zeros(size) for size in upper.shape]
    alive = [np.ones(size, dtype=bool) for size in upper.shape]
    changed = True
    while changed:
        changed = False
        for axis in (0, 1):
            others = np.expand_dims(alive[1 - axis], axis)
            ups, downs = ((part & others).any(axis=1 - axis) for part in (upper, lower))
            dead = alive[axis] & ~(ups & downs)
            limits[axis][dead & downs] = np.inf
            limits[axis][dead & ups] = -np.inf
            limits[axis][dead & ~ups & ~downs] = np.nan
            alive[axis] &= ~dead
            changed |= bool(dead.any())
    return limits[0], limits[1]


def _label(upper: np.ndarray, lower: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    count, width = upper.shape
    if upper.all() or lower.all():
        # Every row and column has an alpha and a beta, and one of the two is everywhere.
        return np.zeros(count, dtype=int), np.zeros(width, dtype=int)
    tails, heads = np.nonzero(upper)
    back_heads, back_tails = np.nonzero(lower)
    sources = np.concatenate([tails, back_tails + count])
    targets = np.concatenate([heads + count, back_heads])
    edges = coo_array((np.ones(len(sources)), (sources, targets)), (count + width,) * 2)
    _, labels = connected_components(edges.tocsr(), connection="strong")
    return labels[:count], labels[count:]
