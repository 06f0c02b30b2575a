"""The summands of a balancing problem at given scales, and closed-form sweeps."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from flatgauge.shapes import Float

SWEEPS = 5
"""The fewest closed-form sweeps before the first Newton step."""
MOST_SWEEPS = 30
"""The most of them, where each still leaves a tenth of the gap or less."""
FAR = 30.0
"""The change of log scales after which the summands are taken from logarithms again.

What was lost below 1e-308 is below 1e-294 until then, and still nothing.
"""


class Terms:
    """p_ij = alpha_ij e^{x_i + y_j} / u and q_ij = beta_ij e^{-x_i - y_j} / u.

    u = sqrt(max alpha · max beta), and every row and column has entries of both kinds.
    A change of scales multiplies rows and columns in place, without an exponential of a
    matrix, and trials of changes are matrix-vector products.

    Attributes:
        x: the log scales of the rows.
        y: the log scales of the columns.
        upper: p.
        lower: q.
    """

    def __init__(
        self,
        alpha: Float[Tensor, "rows columns"],
        beta: Float[Tensor, "rows columns"],
    ):
        self._alpha, self._beta = alpha, beta
        top, bottom = float(alpha.max()), float(beta.max())
        self._log_unit = (math.log(top) + math.log(bottom)) / 2
        self.x = alpha.new_full(alpha.shape[:1], (math.log(bottom) - math.log(top)) / 2)
        self.y = alpha.new_zeros(alpha.shape[1])
        self.upper, self.lower = alpha / top, beta / bottom
        self._moved = 0.0
        if not _extent(*self._closed_form(*self._row_sums(self.y))) <= FAR:
            self._start_from_maxima()

    def value(self, dx: Float[Tensor, " rows"], dy: Float[Tensor, " columns"]) -> float:
        """The objective at x + dx and y + dy, in units of u."""
        up, down = self._row_sums(dy)
        return float(dx.exp() @ up + (-dx).exp() @ down)

    def move(self, dx: Float[Tensor, " rows"], dy: Float[Tensor, " columns"]) -> None:
        """Change the log scales and the summands."""
        self.x, self.y = self.x + dx, self.y + dy
        self._moved += _extent(dx, dy)
        if self._moved > FAR:
            self.upper, self.lower = (part.exp_() for part in self._logarithms())
            self._moved = 0.0
            return
        self.upper.mul_(dx.exp()[:, None]).mul_(dy.exp())
        self.lower.mul_((-dx).exp()[:, None]).mul_((-dy).exp())

    def sweep(self, dy: Float[Tensor, " columns"], tol: float, least: int) -> None:
        """From y + dy, minimize over x and over y in turn, each in closed form.

        x_i = 1/2 ln(sum_j beta_ij e^{-y_j} / sum_j alpha_ij e^{y_j}), and y alike. After
        the least number of times that ends when the gap is about tol, or once a sweep
        leaves more than a tenth of it.
        """
        dx, before = torch.zeros_like(self.x), math.inf
        for count in range(MOST_SWEEPS):
            up, down = self._row_sums(dy)
            left, right = up * dx.exp(), down * (-dx).exp()
            rows = left + right
            gap = float(rows @ ((left - right) / rows).square() / rows.sum()) / 2
            if count >= least and (gap <= tol / 4 or gap > before / 10):
                break
            before = gap
            dx, dy = self._closed_form(up, down)
        self.move(dx, dy)

    def _row_sums(self, dy: Tensor) -> tuple[Tensor, Tensor]:
        """Of p and q at y + dy."""
        return self.upper @ dy.exp(), self.lower @ (-dy).exp()

    def _closed_form(self, up: Tensor, down: Tensor) -> tuple[Tensor, Tensor]:
        """One sweep, from the sums over rows."""
        dx = (down.log() - up.log()) / 2
        up, down = self.upper.T @ dx.exp(), self.lower.T @ (-dx).exp()
        return dx, (down.log() - up.log()) / 2

    def _start_from_maxima(self) -> None:
        """Sweeps on logarithms, with maxima for sums: no row or column is lost in them."""
        self.upper, self.lower = self._logarithms()
        for _ in range(SWEEPS):
            dx = (self.lower.amax(1) - self.upper.amax(1)) / 2
            self.upper += dx[:, None]
            self.lower -= dx[:, None]
            dy = (self.lower.amax(0) - self.upper.amax(0)) / 2
            self.upper += dy
            self.lower -= dy
            self.x, self.y = self.x + dx, self.y + dy
            if float(dy.abs().max()) <= FAR:
                break
        self.upper.exp_()
        self.lower.exp_()

    def _logarithms(self) -> tuple[Tensor, Tensor]:
        upper = self._alpha.log().add_((self.x - self._log_unit)[:, None]).add_(self.y)
        lower = self._beta.log().sub_((self.x + self._log_unit)[:, None]).sub_(self.y)
        return upper, lower


def _extent(dx: Tensor, dy: Tensor) -> float:
    return float(dx.abs().max() + dy.abs().max())
