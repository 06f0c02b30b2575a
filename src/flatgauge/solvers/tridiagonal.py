"""The eigenvalues and eigenvectors of a symmetric tridiagonal matrix."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.linalg import get_lapack_funcs

# Up to so many rows QR iterations are faster than divide and conquer.
FEW_ROWS = 40
# Not eigh_tridiagonal, whose checks take longer than the work where rows are few.
(_stev,) = get_lapack_funcs(("stev",), dtype=np.float64)


def diagonalized(
    diagonal: Sequence[float], beside: Sequence[float]
) -> tuple[np.ndarray, np.ndarray]:
    """The eigenvalues, ascending, and the orthonormal eigenvectors as columns.

    Args:
        diagonal: m numbers.
        beside: the m - 1 numbers above and below the diagonal.

    >>> diagonalized([1.0, 1.0], [2.0])[0].round(12).tolist()
    [-1.0, 3.0]
    """
    if len(diagonal) == 1:
        return np.array(diagonal), np.ones((1, 1))
    if len(diagonal) <= FEW_ROWS:
        values, vectors, failed = _stev(diagonal, beside)
        if not failed:
            return values, vectors
    lower = np.diag(diagonal) + np.diag(beside, -1)
    values, vectors = np.linalg.eigh(lower, UPLO="L")
    return values, vectors
