"""The linear systems of Newton's method for a balancing problem."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from flatgauge.shapes import Float, Int

COLUMNS_A_STEP = 32
"""One conjugate-gradient step may be taken for so many columns.

Together they cost about what forming N^T N does.
"""


class Schur:
    """The inverse of 1 - N^T N, with N = diag(G 1)^{-1/2} G diag(G^T 1)^{-1/2}.

    That is singular: adding c to x and -c to y of a component changes nothing. One
    rank-one term for each component fixes this without changing the solution.
    """

    def __init__(
        self,
        matrix: Float[Tensor, "rows columns"],
        weights: Float[Tensor, " columns"],
        labels: Int[Tensor, " columns"],
        direct: bool,
    ):
        """Take N, the square roots of G's column sums, and the columns' components."""
        self._matrix, self._weights, self._labels = matrix, weights, labels
        self._squares = self._sums(weights.square())
        self._factored = self._factor() if direct else None

    @property
    def direct(self) -> bool:
        """Whether the matrix has been formed."""
        return self._factored is not None

    def solve(
        self, right: Float[Tensor, " columns"], target: float
    ) -> Float[Tensor, " columns"]:
        """By conjugate gradients, or by Cholesky's factor where these are slow.

        The former end when the residual r has sum_j weights_j |r_j| <= target.
        """
        if self._factored is None:
            found = self._conjugate_gradients(right, target)
            if found is not None:
                return found
            self._factored = self._factor()
        return self._factored(right)

    def _conjugate_gradients(self, right: Tensor, target: float) -> Tensor | None:
        found, rest = torch.zeros_like(right), right
        way, square = rest, rest @ rest
        for _ in range(len(right) // COLUMNS_A_STEP):
            if float(rest.abs() @ self._weights) <= target:
                return found
            image = way - self._matrix.T @ (self._matrix @ way) + self._gauge(way)
            size = square / (way @ image)
            found, rest = found + size * way, rest - size * image
            before, square = square, rest @ rest
            way = rest + square / before * way
        return None

    def _factor(self) -> Callable[[Tensor], Tensor]:
        schur = torch.mm(self._matrix.T, self._matrix).neg_()
        schur.diagonal().add_(1)
        unit = self._weights / self._squares.sqrt()
        schur += torch.outer(unit, unit) * (self._labels[:, None] == self._labels)
        factor, failed = torch.linalg.cholesky_ex(schur)
        if not failed:
            return lambda right: torch.cholesky_solve(right[:, None], factor).squeeze(1)
        # Parts that hang together by less than rounding: leave them where they are.
        values, vectors = torch.linalg.eigh(schur)
        inverse = torch.where(values > 1e-14, 1 / values.clamp_min(1e-14), 0.0)
        return lambda right: vectors @ (inverse * (vectors.T @ right))

    def _gauge(self, vector: Tensor) -> Tensor:
        return self._weights * self._sums(self._weights * vector) / self._squares

    def _sums(self, vector: Tensor) -> Tensor:
        """The sum over each column's component."""
        sums = torch.zeros_like(vector).index_add_(0, self._labels, vector)
        return sums[self._labels]
