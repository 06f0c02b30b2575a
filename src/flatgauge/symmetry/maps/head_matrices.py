"""Invertible matrices for the heads of an attention layer, and what rotary leaves."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Float
from flatgauge.vectors import generator

Rotary = Literal["half", "interleaved"]


def random_gl(
    count: int, size: int, seed: int, spread: float = 0.5
) -> Float[Tensor, "count size size"]:
    """Random invertible matrices with singular values in [exp(-spread), exp(spread)].

    Each is U diag(s) Vᵀ with U, V random orthogonal and log s uniform, so its condition
    number is at most exp(2 spread).

    Args:
        count: how many.
        size: their number of rows.
        seed: of the draw.
        spread: the largest |log| of a singular value.
    """
    random = generator(seed)
    shape = (count, size, size)
    left = _orthogonal(torch.randn(shape, generator=random, dtype=torch.float64))
    right = _orthogonal(torch.randn(shape, generator=random, dtype=torch.float64))
    logs = torch.rand(count, 1, size, generator=random, dtype=torch.float64) * 2 - 1
    return (left * (spread * logs).exp()) @ right


def random_orthogonal(size: int, seed: int) -> Float[Tensor, "size size"]:
    """A random orthogonal matrix, uniform over the group.

    Args:
        size: its number of rows.
        seed: of the draw.
    """
    drawn = torch.randn(1, size, size, generator=generator(seed), dtype=torch.float64)
    return _orthogonal(drawn)[0]


def random_rotary(
    count: int, size: int, seed: int, pairing: Rotary, spread: float = 0.5
) -> Float[Tensor, "count size size"]:
    """Random matrices that commute with rotary embeddings: scaled rotations of pairs.

    Args:
        count: how many.
        size: their number of rows, even.
        seed: of the draw.
        pairing: how the coordinates are paired, as in `AttentionLayout`.
        spread: the largest |log| of a scale.

    Raises:
        SymmetryError: if `size` is odd.
    """
    pairs = _pairs(size, pairing)
    random = generator(seed)
    drawn = torch.rand(2, count, size // 2, generator=random, dtype=torch.float64)
    numbers = torch.polar((spread * (2 * drawn[0] - 1)).exp(), 2 * math.pi * drawn[1])
    return _scaled_rotations(numbers.real, numbers.imag, pairs)


def check_rotary(matrices: Float[Tensor, "groups h h"], pairing: Rotary) -> None:
    """Refuse matrices that do not commute with every rotary rotation.

    The rotations of different pairs have different frequencies, so what commutes with
    all of them is a complex number for each pair: a scaled rotation.

    Raises:
        SymmetryError: if a matrix is anything else, beyond rounding.
    """
    first, second = _pairs(matrices.shape[-1], pairing)
    real, imaginary = matrices[:, first, first], matrices[:, second, first]
    allowed = _scaled_rotations(real, imaginary, (first, second))
    if bool((matrices - allowed).abs().max() > 1e-12 * matrices.abs().max()):
        raise SymmetryError(
            "rotary embeddings turn queries and keys pair by pair, and only scaled "
            "rotations of these pairs commute with them: draw the matrices with "
            "random_rotary, or transform value and output instead."
        )


def _pairs(size: int, pairing: Rotary) -> tuple[Tensor, Tensor]:
    if size % 2:
        raise SymmetryError(f"rotary embeddings cannot pair {size} coordinates: odd.")
    if pairing == "half":
        return torch.arange(size // 2), torch.arange(size // 2, size)
    return torch.arange(0, size, 2), torch.arange(1, size, 2)


def _scaled_rotations(
    real: Float[Tensor, "count n"],
    imaginary: Float[Tensor, "count n"],
    pairs: tuple[Tensor, Tensor],
) -> Float[Tensor, "count size size"]:
    """A complex number for each pair of coordinates, as a matrix."""
    first, second = pairs
    matrices = real.new_zeros(len(real), 2 * len(first), 2 * len(first))
    matrices[:, first, first] = matrices[:, second, second] = real
    matrices[:, second, first] = imaginary
    matrices[:, first, second] = -imaginary
    return matrices


def _orthogonal(gaussian: Float[Tensor, "count n n"]) -> Float[Tensor, "count n n"]:
    factor, triangle = torch.linalg.qr(gaussian)
    # The sign of R's diagonal makes the factor uniform over the orthogonal group.
    return factor * triangle.diagonal(dim1=1, dim2=2).sign()[:, None, :]
