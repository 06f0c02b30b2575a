"""Matrices that commute with given ones, such as the rotations of rotary embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from scipy.sparse.csgraph import connected_components
from torch import Tensor

from flatgauge.shapes import Float
from flatgauge.symmetry.maps.head_matrices import random_gl
from flatgauge.vectors import generator

NOTHING = 1e-12
"""Entries up to this, relative to the largest, are zero."""
LARGEST_BLOCK = 16
"""Of larger blocks nothing but the multiples of 1 is looked for."""
CLEAR = 1e-10
"""Singular values up to this, relative to the largest, are zero."""


@dataclass(frozen=True, eq=False)
class CommutingBlock:
    """Coordinates that are mixed among themselves alone.

    Attributes:
        places: the coordinates.
        basis: of the matrices that commute there, [basis, size, size], orthonormal; None
            where any matrix does.
    """

    places: Tensor
    basis: Tensor | None


def commutant(matrices: Float[Tensor, "many d d"]) -> tuple[CommutingBlock, ...]:
    """The X with X A = A X for all A and Aᵀ given, block by block.

    Blocks are the coordinates that the matrices connect, and all those together that each
    of them multiplies by the same number. What might go between other blocks is left out.
    """
    every = torch.cat([matrices, matrices.mT]).double().cpu()
    every = every / every.abs().max()
    there = (every.abs() > NOTHING).any(0)
    _, labels = connected_components(there.numpy(), directed=False)
    blocks, alone = [], []
    for label in range(labels.max() + 1):
        places = torch.from_numpy((labels == label).nonzero()[0])
        if len(places) == 1:
            alone.append(int(places))
        else:
            part = every[:, places[:, None], places]
            blocks.append(CommutingBlock(places, _commuting(part)))
    while alone:
        first = every[:, alone[0], alone[0]]
        like = [
            i for i in alone if float((every[:, i, i] - first).abs().max()) <= NOTHING
        ]
        blocks.append(CommutingBlock(torch.tensor(like), None))
        alone = [i for i in alone if i not in like]
    return tuple(blocks)


def _commuting(matrices: Float[Tensor, "many m m"]) -> Float[Tensor, "basis m m"]:
    size = matrices.shape[-1]
    unit = torch.eye(size, dtype=matrices.dtype)
    ones = unit[None] / size**0.5
    if size > LARGEST_BLOCK:
        return ones
    rows = torch.cat(
        [
            torch.kron(unit, a.mT.contiguous()) - torch.kron(a, unit)
            for a in matrices.clone()
        ]
    )
    _, values, vectors = torch.linalg.svd(rows, full_matrices=False)
    zero = values <= CLEAR * max(float(values[0]), CLEAR)
    return vectors[zero].reshape(-1, size, size) if bool(zero.any()) else ones


def belongs(
    matrices: Float[Tensor, "many d d"], blocks: Sequence[CommutingBlock]
) -> bool:
    """Whether matrices commute, as the blocks say."""
    rest = matrices.clone()
    for block in blocks:
        rows, columns = block.places[:, None], block.places
        part = rest[:, rows, columns]
        if block.basis is None:
            rest[:, rows, columns] = 0.0
        else:
            flat = block.basis.flatten(1).to(part)
            inside = (part.flatten(1) @ flat.mT) @ flat
            rest[:, rows, columns] = part - inside.reshape(part.shape)
    return float(rest.abs().max()) <= 1e-9 * float(matrices.abs().max())


def random_commuting(
    count: int, size: int, blocks: Sequence[CommutingBlock], seed: int, spread: float
) -> Float[Tensor, "count size size"]:
    """Random invertible matrices out of the blocks.

    Args:
        count: how many.
        size: their number of rows.
        blocks: what they are made of.
        seed: of the draw.
        spread: the largest |log| of a singular value in a block where any matrix may be,
            else the largest coefficient of the logarithm.
    """
    random = generator(seed)
    found = torch.zeros(count, size, size, dtype=torch.float64)
    for number, block in enumerate(blocks):
        rows, columns = block.places[:, None], block.places
        if block.basis is None:
            found[:, rows, columns] = random_gl(
                count, len(columns), 1000 * seed + number, spread
            )
            continue
        draws = torch.rand(
            count, len(block.basis), generator=random, dtype=torch.float64
        )
        scaled = block.basis * len(columns) ** 0.5
        logarithm = torch.tensordot(spread * (2 * draws - 1), scaled, 1)
        found[:, rows, columns] = torch.linalg.matrix_exp(logarithm)
    return found
