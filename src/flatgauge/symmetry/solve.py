"""The null space of a sparse homogeneous system whose equations mostly have two terms.

Scaling rules say `x = y`, `x = 0`, `x = 2 y`, now and then `x + y = z`. The first three
kinds are resolved in bulk by connected components and a spanning forest with weights;
what is left is peeled, an equation at a time for every variable that occurs nowhere
else, and the rest, if any, is eliminated densely, one connected block after another.

Coefficients are small rationals, so that float64 decides exactly whether two of them
agree: what differs by less than 1e-9 does not differ.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

NEGLIGIBLE = 1e-9

Array = np.ndarray
Matrix = Any
"""A sparse matrix (scipy has no types for them)."""
compress: Any = sparse.csr_array
"""A sparse matrix with its entries in the order of rows."""


@dataclass(frozen=True)
class NullSpace:
    """Every solution is `matrix @ z`, and `matrix[free]` is the identity.

    Attributes:
        matrix: One row per variable, one column per free variable.
        free: The variables that parametrize the solutions.
    """

    matrix: Matrix
    free: Array

    @property
    def dimension(self) -> int:
        """The number of free variables."""
        return self.free.size

    @property
    def determined(self) -> Array:
        """The other variables: their unit vectors complement the null space."""
        return np.setdiff1d(np.arange(self.matrix.shape[0]), self.free)


def null_space(
    equations: Matrix, equal: Array | None = None, zero: Array | None = None
) -> NullSpace:
    """Solve `equations @ x = 0` with `x[equal[0]] = x[equal[1]]` and `x[zero] = 0`.

    Args:
        equations: A sparse matrix, one row per equation, one column per variable.
        equal: Pairs of equal variables, of shape (2, m).
        zero: Variables that are zero.

    >>> rows = compress(np.array([[1.0, -2.0, 0.0, 0.0], [0.0, 1.0, 1.0, 1.0]]))
    >>> null_space(rows).dimension
    2
    """
    count = equations.shape[1]
    classes = _merge_equal(count, equal, zero)
    width = int(classes.max(initial=0))
    merge = _selector(classes, np.ones(count), width)
    rows = compress(equations) @ merge
    weights = np.ones(width)
    roots = np.arange(width)
    while True:
        rows = _without_zeros(rows)
        rows = rows[np.diff(rows.indptr) > 0]
        terms = np.diff(rows.indptr)
        if not np.any((terms == 1) | (terms == 2)):
            break
        step_roots, step_weights = _short_equations(rows, terms)
        weights = weights * step_weights[roots]
        roots = step_roots[roots]
        substitution = _selector(step_roots + 1, step_weights, width)
        rows = rows[terms > 2] @ substitution
    alive = (roots == np.arange(roots.size)) & (weights != 0)
    expression = _long_equations(rows, alive)
    resolved = _selector(roots + 1, weights, width) @ expression.matrix
    matrix = compress(merge @ resolved)
    first = np.full(width + 1, -1)
    first[classes[::-1]] = np.arange(count)[::-1]
    return NullSpace(matrix, first[1:][expression.free])


def _merge_equal(count: int, equal: Array | None, zero: Array | None) -> Array:
    """A class for every variable: 0 for those that are zero, else 1, 2, ..."""
    equal = np.zeros((2, 0), np.int64) if equal is None else equal
    zero = np.zeros(0, np.int64) if zero is None else zero
    i = np.concatenate([equal[0], zero]) + 1
    j = np.concatenate([equal[1] + 1, np.zeros(zero.size, np.int64)])
    graph = sparse.coo_array((np.ones(i.size), (i, j)), shape=(count + 1, count + 1))
    _, label = csgraph.connected_components(graph, directed=False)
    order = np.arange(label.max() + 1)
    order[label[0]], order[0] = 0, order[label[0]]
    return order[label[1:]]


def _selector(classes: Array, weights: Array, width: int) -> Matrix:
    """The matrix of x[i] = weights[i] * y[classes[i] - 1], where class 0 means 0."""
    kept = np.flatnonzero((classes > 0) & (weights != 0))
    return compress(
        (weights[kept], (kept, classes[kept] - 1)), shape=(classes.size, width)
    )


def _without_zeros(rows: Matrix) -> Matrix:
    rows = compress(rows)
    rows.sum_duplicates()
    rows.data[np.abs(rows.data) < NEGLIGIBLE] = 0
    rows.eliminate_zeros()
    return rows


def _short_equations(rows: Matrix, terms: Array) -> tuple[Array, Array]:
    """Roots and weights, x = weight * x[root], from the equations of one or two terms."""
    count = rows.shape[1]
    zero = np.zeros(count, bool)
    zero[rows[terms == 1].indices] = True
    pairs = rows[terms == 2]
    i, j = pairs.indices[0::2].astype(np.int64), pairs.indices[1::2].astype(np.int64)
    ratio = -pairs.data[1::2] / pairs.data[0::2]
    roots, weights = _forest(count, i, j, ratio)
    inconsistent = np.abs(weights[i] - ratio * weights[j]) > NEGLIGIBLE * np.abs(ratio)
    bad = np.zeros(count, bool)
    bad[roots[i[inconsistent]]] = True
    bad[roots[zero]] = True
    return roots, np.where(bad[roots], 0.0, weights)


def _forest(count: int, i: Array, j: Array, ratio: Array) -> tuple[Array, Array]:
    """Follow x[i] = ratio * x[j] along a spanning forest, by pointer doubling."""
    graph = sparse.coo_array((np.ones(i.size), (i, j)), shape=(count, count))
    _, component = csgraph.connected_components(graph, directed=False)
    _, representative = np.unique(component, return_index=True)
    start = np.concatenate([i, np.full(representative.size, count)])
    stop = np.concatenate([j, representative])
    rooted = compress(
        (np.ones(start.size), (start, stop)), shape=(count + 1, count + 1)
    )
    _, parent = csgraph.breadth_first_order(rooted, count, directed=False)
    parent = parent[:count].astype(np.int64)
    nodes = np.arange(count)
    is_root = parent == count
    parent = np.where(is_root, nodes, parent)

    key = np.minimum(i, j) * count + np.maximum(i, j)
    order = np.argsort(key, kind="stable")
    wanted = np.minimum(nodes, parent) * count + np.maximum(nodes, parent)
    position = np.searchsorted(key[order], wanted[~is_root])
    edge = order[position]
    forward = i[edge] == nodes[~is_root]
    weights = np.ones(count)
    weights[~is_root] = np.where(forward, ratio[edge], 1 / ratio[edge])
    while np.any(parent[parent] != parent):
        weights = weights * weights[parent]
        parent = parent[parent]
    return parent, weights


def _long_equations(rows: Matrix, alive: Array) -> NullSpace:
    """Express variables of equations with three or more terms by the free ones."""
    count = rows.shape[1]
    levels: list[tuple[Array, Matrix]] = []
    while rows.shape[0]:
        uses = np.bincount(rows.indices, minlength=count)
        row_of = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
        lonely = np.flatnonzero(uses[rows.indices] == 1)
        if lonely.size == 0:
            break
        solved, chosen = np.unique(row_of[lonely], return_index=True)
        entries = lonely[chosen]
        pivots = rows.indices[entries]
        scaled = sparse.diags_array(-1 / rows.data[entries]) @ rows[solved]
        unit = compress(
            (np.ones(pivots.size), (np.arange(pivots.size), pivots)), shape=scaled.shape
        )
        levels.append((pivots, _without_zeros(scaled + unit)))
        keep = np.ones(rows.shape[0], bool)
        keep[solved] = False
        rows = rows[keep]
    levels.extend(_dense_blocks(rows))

    dependent = np.zeros(count, bool)
    for pivots, _ in levels:
        dependent[pivots] = True
    free = np.flatnonzero(alive & ~dependent)
    matrix = compress(
        (np.ones(free.size), (free, np.arange(free.size))), shape=(count, free.size)
    )
    for pivots, others in reversed(levels):
        place = compress(
            (np.ones(pivots.size), (pivots, np.arange(pivots.size))),
            shape=(count, pivots.size),
        )
        matrix = compress(matrix + place @ (others @ matrix))
    return NullSpace(matrix, free)


def _dense_blocks(rows: Matrix) -> list[tuple[Array, Matrix]]:
    """Reduced row echelon form of each connected block of equations."""
    if rows.shape[0] == 0:
        return []
    links = sparse.block_array([[None, rows], [rows.T, None]])
    _, block = csgraph.connected_components(links, directed=False)
    block = np.unique(block[: rows.shape[0]], return_inverse=True)[1]
    pivots: list[int] = []
    solved: list[Matrix] = []
    for number in range(block.max() + 1):
        part = rows[block == number]
        columns = np.unique(part.indices)
        reduced, leads = _row_echelon(part[:, columns].toarray())
        if leads.size == 0:
            continue
        reduced[np.arange(leads.size), leads] = 0
        pivots.extend(columns[leads].tolist())
        i, j = np.nonzero(reduced)
        solved.append(
            compress(
                (-reduced[i, j], (i, columns[j])), shape=(leads.size, rows.shape[1])
            )
        )
    if not pivots:
        return []
    return [(np.array(pivots), compress(sparse.vstack(solved)))]


def _row_echelon(matrix: Array) -> tuple[Array, Array]:
    matrix = matrix.astype(np.float64)
    leads: list[int] = []
    for column in range(matrix.shape[1]):
        row = len(leads)
        if row == matrix.shape[0]:
            break
        best = row + int(np.argmax(np.abs(matrix[row:, column])))
        if abs(matrix[best, column]) < NEGLIGIBLE:
            continue
        matrix[[row, best]] = matrix[[best, row]]
        matrix[row] /= matrix[row, column]
        factors = matrix[:, column].copy()
        factors[row] = 0
        matrix -= np.outer(factors, matrix[row])
        matrix[np.abs(matrix) < NEGLIGIBLE] = 0
        leads.append(column)
    return matrix[: len(leads)], np.array(leads, np.int64)
