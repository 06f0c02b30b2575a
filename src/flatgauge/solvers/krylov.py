"""The Lanczos tridiagonalization, one step at a time, fully reorthogonalized."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

import numpy as np
import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator, rounding_of
from flatgauge.deadline import OutOfTime
from flatgauge.errors import NonFiniteError
from flatgauge.noise import standard_normal
from flatgauge.shapes import Float
from flatgauge.solvers.inner import (
    combination,
    full_precision,
    inner_products,
    without_parts_along,
)
from flatgauge.solvers.tridiagonal import diagonalized
from flatgauge.vectors import generator, unravel


def random_start(
    operator: SymmetricOperator, random: torch.Generator
) -> Float[Tensor, " n"]:
    """A standard normal flat vector: up to rounding, a function of generator and n."""
    first = next(iter(operator.space.values()))
    return standard_normal(operator.dimension, random, first)


def require_finite(numbers: Sequence[float]) -> None:
    """Raise a NonFiniteError unless all numbers computed from a product are finite."""
    if not all(math.isfinite(number) for number in numbers):
        raise NonFiniteError(
            "a product with the curvature operator is NaN or infinite: check that the "
            "loss and the parameters are finite, or use float64."
        )


class Coming:
    """Numbers on their way to the host, while their device is given more to do."""

    def __init__(self, tensor: Float[Tensor, " n"]):
        self._copy = tensor.to("cpu", non_blocking=True)
        self._arrived = (
            torch.cuda.current_stream(tensor.device).record_event()
            if tensor.is_cuda
            else None
        )

    def numbers(self) -> list[float]:
        """Wait for them, and not for what was begun since."""
        if self._arrived is not None:
            self._arrived.synchronize()
        return self._copy.tolist()


class Lanczos:
    """The tridiagonal matrix of a symmetric operator in a growing Krylov basis.

    After m steps A Q = Q T + beta_m q_{m+1} e_m^T, where Q = (q_1 ... q_m) has
    orthonormal columns, q_1 is the normalized start vector, and T has `alphas` on the
    diagonal and `betas[:-1]` beside it. Each new vector is orthogonalized twice against
    all earlier ones and against the `deflated` ones, so that the recurrence is that of
    the operator restricted to their complement; `deflated_shares` are the squared cosines
    between them and the start vector. A step waits for the device once, but not for a
    product that was begun ahead. `stopped` is set where time ended a run.

    Args:
        operator: the symmetric operator A.
        start: a flat vector that is not in the span of the deflated ones.
        deflated: orthonormal flat vectors, as columns, to stay orthogonal to.
        scale: a lower bound of the operator's spectral radius known from elsewhere; it
            keeps the rounding left after deflation from being taken for curvature.

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
    ):
        self.operator = operator
        self.alphas: list[float] = []
        self.betas: list[float] = []
        self.scale = scale
        self.exhausted = False
        self.stopped: OutOfTime | None = None
        self._deflated = start.new_zeros(start.numel(), 0).T
        if deflated is not None:
            self._deflated = deflated.T.contiguous()
        self.dimension = start.numel() - self._deflated.shape[0]
        self._blocks: list[Tensor] = []
        self._taken = 0
        self._ahead: Tensor | None = None
        parts = inner_products(self._deflated, start[None])[:, 0]
        self.deflated_shares: list[float] = (
            (parts / start.double().norm()).square().tolist()
        )
        first = self._orthogonalized(start)
        # Norms in float64: in float32 those of long vectors are off by many roundings.
        self._next = first / first.double().norm()

    @property
    def steps(self) -> int:
        """The number m of steps taken, and of the products that they used."""
        return len(self.alphas)

    @property
    def rounding(self) -> float:
        """The rounding error of a product, as a share of the spectral radius."""
        return self.operator.rounding

    @property
    def finest(self) -> float:
        """The same with all the bits of the vectors' dtype."""
        return rounding_of(self._next.dtype)

    def step(self, ahead: bool = False) -> None:
        """Multiply once, and add one row and column to the tridiagonal matrix.

        Args:
            ahead: whether another step is likely. Its product is then begun before this
                step's numbers are known, where that does not keep the host waiting; if
                they end the run, it was begun in vain.

        Raises:
            NonFiniteError: if the product is NaN or infinite.
        """
        product, self._ahead = self._ahead, None
        if product is None:
            # Not the stored row: where a vector begins in memory changes a product's bits.
            product = self._multiplied(self._next)
        # After the product, which time may not allow.
        current = self._store(self._next)
        alpha = torch.dot(current.double(), product.double())
        image = self._orthogonalized(product)
        beta = image.double().norm()
        self._next = image / beta.clamp(min=torch.finfo(image.dtype).tiny)
        del image
        coming = Coming(torch.stack([alpha, beta]))
        more = ahead and self.steps + 1 < self.dimension
        if more and self.operator.begins_at_once:
            with suppress(OutOfTime):
                self._ahead = self._multiplied(self._next)
        numbers = coming.numbers()
        if not all(map(math.isfinite, numbers)):
            # It may know the parameter that is to blame.
            self.operator.check([unravel(product, self.operator.space)])
        require_finite(numbers)
        self.alphas.append(numbers[0])
        self.betas.append(numbers[1])
        if self.steps == self.dimension:
            self.betas[-1] = 0.0
        # Coarse products do not end the recurrence, they only bound what it says.
        self.exhausted = self.betas[-1] <= self.finest * self._norm_bound()
        if self.exhausted:
            self._ahead = None

    def ritz(self) -> tuple[np.ndarray, np.ndarray]:
        """The eigenvalues of T, ascending, and its eigenvectors as columns."""
        return diagonalized(self.alphas, self.betas[:-1])

    def combine(self, coefficients: np.ndarray) -> Float[Tensor, "n k"]:
        """Q times the columns of an m x k matrix: flat vectors of the operator."""
        weights = torch.as_tensor(
            coefficients, dtype=self._next.dtype, device=self._next.device
        )
        pieces = weights.split([block.shape[0] for block in self._filled()])
        columns = [
            combination(piece.T, block).T
            for block, piece in zip(self._filled(), pieces, strict=True)
        ]
        return torch.stack(columns).sum(dim=0) if len(columns) > 1 else columns[0]

    def residual(self, coefficients: np.ndarray) -> Float[Tensor, " n"]:
        """A v - theta v = beta_m u_m q_{m+1} for the Ritz vector v = Q u.

        With deflated vectors, its part orthogonal to them.
        """
        return self._next * (self.betas[-1] * float(coefficients[-1]))

    def _multiplied(self, vector: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        return self.operator.multiply_flat(vector[:, None], check=False)[:, 0]

    def _norm_bound(self) -> float:
        before = [0.0, *self.betas[:-1]]
        rows = zip(before, self.alphas, self.betas, strict=True)
        return max(self.scale, *(left + abs(mid) + right for left, mid, right in rows))

    def _orthogonalized(self, vector: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        blocks = [b for b in (self._deflated, *self._filled()) if b.shape[0]]
        with full_precision(vector):
            for block in blocks * 2:
                vector = without_parts_along(block, vector)
        return vector

    def _filled(self) -> list[Tensor]:
        # Rows are basis vectors; only the last block can have rows not yet in use.
        taken = self._taken
        filled = []
        for block in self._blocks:
            filled.append(block[:taken])
            taken -= block.shape[0]
        return filled

    def _store(self, vector: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        room = sum(block.shape[0] for block in self._blocks)
        if self._taken == room:
            # Blocks are never copied; they grow so that their number stays small.
            rows = min(max(8, room // 2), max(1, self.dimension - room))
            self._blocks.append(vector.new_empty(rows, vector.numel()))
            room += rows
        row = self._blocks[-1][self._taken - room]
        row.copy_(vector)
        self._taken += 1
        return row


def tridiagonalize(
    operator: SymmetricOperator, steps: int = 30, seed: int = 0
) -> Lanczos:
    """Run at most `steps` Lanczos steps from a random start, and keep everything.

    Args:
        operator: the symmetric operator.
        steps: the number of products, fewer if an invariant subspace is found.
        seed: of the Gaussian start vector.

    Returns:
        The `Lanczos` object, whose `alphas` and `betas` serve extreme eigenvalues and
        the spectral density alike.
    """
    lanczos = Lanczos(operator, random_start(operator, generator(seed)))
    while lanczos.steps < steps and not lanczos.exhausted:
        lanczos.step(ahead=lanczos.steps + 1 < steps)
    return lanczos
