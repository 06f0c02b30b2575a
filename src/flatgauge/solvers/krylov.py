"""The Lanczos method, one step at a time, fully reorthogonalized, in bounded memory."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator, rounding_of
from flatgauge.deadline import OutOfTime
from flatgauge.errors import NonFiniteError
from flatgauge.shapes import Float
from flatgauge.solvers.basis import Basis, Room, orthogonalized, room_for
from flatgauge.solvers.inner import dot, inner_products, norm
from flatgauge.solvers.tridiagonal import diagonalized
from flatgauge.vectors import flat_gaussian, unravel


def random_start(
    operator: SymmetricOperator, random: torch.Generator
) -> Float[Tensor, " n"]:
    """A standard normal flat vector: up to rounding, a function of generator and n."""
    return flat_gaussian(operator.space, random)


def require_finite(numbers: Sequence[float]) -> None:
    """Raise a NonFiniteError unless all numbers computed from a product are finite."""
    if not all(math.isfinite(number) for number in numbers):
        raise NonFiniteError(
            "a product with the curvature operator is NaN or infinite: check that the "
            "loss and the parameters are finite, or use float64."
        )


class Lanczos:
    """The matrix T of a symmetric operator in a growing Krylov basis.

    After m steps A Q = Q T + beta_m q_{m+1} e_m^T, where Q = (q_1 ... q_m) has
    orthonormal columns, q_1 is the normalized start vector, and T has `alphas` on the
    diagonal and `betas[:-1]` beside it. Each new vector is orthogonalized twice against
    all earlier ones and against the `deflated` ones, so that the recurrence is that of
    the operator restricted to their complement; `deflated_shares` are the squared cosines
    between them and the start vector. A step waits for the device once. `stopped` is set
    where time ended a run.

    A step that finds the basis full, or crowded after `unbroken` steps, restarts it (Wu and
    Simon 2000): Q becomes the Ritz
    vectors y_i of some extreme Ritz values theta_i, and q_{m+1} follows them. With
    sigma_i = beta_m <e_m, s_i> for y_i = Q s_i the same equation holds for

        T = [ diag(theta)   sigma   0         ]
            [ sigma^T       alpha   beta  ... ]
            [ 0             beta    ...       ],

    with the alphas and betas since then. `dropped` are the Ritz values that were let go
    and `divisors` all betas so far, which the certificate needs.

    Args:
        operator: the symmetric operator A.
        start: a flat vector that is not in the span of the deflated ones.
        deflated: orthonormal flat vectors, as columns, to stay orthogonal to.
        scale: a lower bound of the operator's spectral radius known from elsewhere; it
            keeps the rounding left after deflation from being taken for curvature.
        signs: the ends of the spectrum that restarts are to keep (1: the largest).
        room: for the basis, if not `basis.room_for` the operator.
        unbroken: steps up to which host memory is taken rather than restarting; all if None.

    >>> import torch
    >>> from flatgauge.curvature.operator import DenseOperator
    >>> A = DenseOperator(torch.diag(torch.tensor([1.0, 2.0, 5.0]).double()))
    >>> lanczos = Lanczos(A, torch.ones(3).double())
    >>> while not lanczos.exhausted:
    ...     lanczos.step()
    >>> lanczos.ritz()[0].round(12).tolist()
    [1.0, 2.0, 5.0]
    """

    def __init__(
        self,
        operator: SymmetricOperator,
        start: Float[Tensor, " n"],
        deflated: Float[Tensor, "n k"] | None = None,
        scale: float = 0.0,
        signs: Sequence[int] = (1, -1),
        room: Room | None = None,
        unbroken: int | None = None,
    ):
        self.operator = operator
        self.alphas: list[float] = []
        self.betas: list[float] = []
        self.dropped: list[float] = []
        self.divisors: list[float] = []
        self.scale = scale
        self.exhausted = False
        self.stopped: OutOfTime | None = None
        self._signs = signs
        self._unbroken = math.inf if unbroken is None else unbroken
        self._kept = np.zeros((2, 0))
        self._before: tuple[list[float], list[float]] | None = None
        self._ritz: tuple[np.ndarray, np.ndarray] | None = None
        self._drift = 0.0
        self._deflated = start.new_zeros(start.numel(), 0).T
        if deflated is not None:
            self._deflated = deflated.T.contiguous()
        self.dimension = operator.dimension - self._deflated.shape[0]
        if room is None:
            whole = room_for(operator)
            room = Room(max(0, whole.device - self._deflated.nbytes), whole.host)
        self.basis = Basis(start, room, self.dimension)
        parts = inner_products(self._deflated, start[None])[:, 0]
        self.deflated_shares: list[float] = (parts / norm(start)).square().tolist()
        first = orthogonalized(start, self._deflated, self.basis)
        self._next = first / norm(first)

    @property
    def steps(self) -> int:
        """The number of steps taken, and of the products that they used."""
        return len(self.divisors)

    @property
    def restarted(self) -> bool:
        """Whether the basis was full before a step."""
        return self._before is not None

    @property
    def tridiagonal(self) -> tuple[list[float], list[float]]:
        """The alphas and betas up to the first restart, which belong to q_1."""
        return (self.alphas, self.betas) if self._before is None else self._before

    @property
    def rounding(self) -> float:
        """The rounding error of products, as a share of the spectral radius."""
        return self.operator.rounding + self._drift

    @property
    def finest(self) -> float:
        """The same with all the bits of the vectors' dtype."""
        return rounding_of(self._next.dtype) + self._drift

    def step(self) -> None:
        """Multiply once, and add one row and column to the tridiagonal matrix.

        Raises:
            NonFiniteError: if the product is NaN or infinite.
        """
        # First the product, which time may not allow.
        product = self.operator.multiply_flat(self._next[:, None], check=False)[:, 0]
        long_enough = self.steps >= self._unbroken
        if self.basis.full or (long_enough and self.basis.crowded):
            self._restart()
        self.basis.append(self._next)
        alpha = dot(self._next, product)
        image = orthogonalized(product, self._deflated, self.basis)
        beta = norm(image)
        self._next = image / beta.clamp(min=torch.finfo(image.dtype).tiny)
        del image
        numbers = torch.stack([alpha, beta]).tolist()
        if not all(map(math.isfinite, numbers)):
            # It may know the parameter that is to blame.
            self.operator.check([unravel(product, self.operator.space)])
        require_finite(numbers)
        self.alphas.append(numbers[0])
        self.betas.append(0.0 if len(self.basis) == self.dimension else numbers[1])
        self.divisors.append(self.betas[-1])
        self._ritz = None
        # Coarse products do not end the recurrence, they only bound what it says.
        self.exhausted = self.betas[-1] <= self.finest * self._norm_bound()

    def go_to(self, steps: int) -> None:
        """Go on to so many steps, fewer if the recurrence ends or the basis is full."""
        while self.steps < steps and not (self.exhausted or self.basis.full):
            self.step()

    def ritz(self) -> tuple[np.ndarray, np.ndarray]:
        """The eigenvalues of T, ascending, and its eigenvectors as columns."""
        if self._ritz is None:
            self._ritz = self._diagonalized()
        return self._ritz

    def combine(self, coefficients: np.ndarray) -> Float[Tensor, "n k"]:
        """Q times the columns of an m x k matrix: flat vectors of the operator."""
        return self.basis.combine(coefficients)

    def residual(self, coefficients: np.ndarray) -> Float[Tensor, " n"]:
        """A v - theta v = beta_m u_m q_{m+1} for the Ritz vector v = Q u.

        With deflated vectors, its part orthogonal to them.
        """
        return self._next * (self.betas[-1] * float(coefficients[-1]))

    def _diagonalized(self) -> tuple[np.ndarray, np.ndarray]:
        values, couplings = self._kept
        if not len(values):
            return diagonalized(self.alphas, self.betas[:-1])
        lower = np.diag(np.append(values, self.alphas))
        lower[len(values), : len(values)] = couplings
        later = np.arange(len(values) + 1, len(lower))
        lower[later, later - 1] = self.betas[:-1]
        found, vectors = np.linalg.eigh(lower, UPLO="L")
        return found, vectors

    def _restart(self) -> None:
        values, vectors = self.ritz()
        kept = _extremes(len(values), self._signs)
        self._before = self.tridiagonal
        self._kept = np.stack([values, self.betas[-1] * vectors[-1]])[:, kept]
        self.dropped += np.delete(values, kept).tolist()
        self.scale = max(self.scale, float(np.abs(values).max()))
        self.alphas, self.betas = [], []
        # The eigenvectors of T are orthonormal up to float64's rounding, which adds up.
        self._drift += rounding_of(torch.float64)
        self.basis.rotate(vectors[:, kept])

    def _norm_bound(self) -> float:
        before = [float(np.linalg.norm(self._kept[1])), *self.betas[:-1]]
        rows = zip(before, self.alphas, self.betas, strict=True)
        return max(self.scale, *(left + abs(mid) + right for left, mid, right in rows))


def _extremes(count: int, signs: Sequence[int]) -> list[int]:
    """Which of so many ascending Ritz values to keep: two thirds, some at either end."""
    kept = 2 * count // 3
    low = kept // 2
    if len(set(signs)) == 1:
        low = 1 if signs[0] > 0 else kept - 1
    return [*range(low), *range(count - (kept - low), count)]
