"""Invertible matrices between the heads of an attention, found by `symmetry.heads`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Float
from flatgauge.symmetry.maps.commutant import (
    CommutingBlock,
    belongs,
    random_commuting,
)
from flatgauge.symmetry.maps.head_matrices import random_gl


@dataclass(frozen=True, eq=False)
class HeadBlock:
    """The places of a tensor that belong to heads.

    Attributes:
        name: of the parameter.
        axis: the dimension that runs over coordinates of heads.
        places: the index along it of each coordinate, [heads, size].
        inverse: whether M⁻ᵀ is applied rather than M.
        groups: the number of the matrix of each head.
    """

    name: str
    axis: int
    places: Tensor
    inverse: bool
    groups: Tensor | None = None


@dataclass(frozen=True, eq=False)
class HeadMatrices:
    """Two sides between which a matrix may come in each group of heads.

    Attributes:
        blocks: the tensors of both sides.
        count: the number of matrices.
        size: their number of rows.
        allowed: what the matrices are made of, where something turns the coordinates of
            a head on the way; None if any invertible matrix will do.
    """

    blocks: tuple[HeadBlock, ...]
    count: int
    size: int
    allowed: tuple[CommutingBlock, ...] | None = None

    @property
    def names(self) -> frozenset[str]:
        """The tensors of both sides."""
        return frozenset(block.name for block in self.blocks)


def mix_heads(
    tensors: Mapping[str, Tensor],
    heads: HeadMatrices,
    matrices: Float[Tensor, "count size size"],
) -> dict[str, Tensor]:
    """Apply M to one side and M⁻ᵀ to the other, head by head.

    Args:
        tensors: parameters by name.
        heads: where the sides are.
        matrices: an invertible M for each group of heads.

    Raises:
        SymmetryError: if a matrix is singular, or they do not fit.
    """
    if matrices.shape != (heads.count, heads.size, heads.size):
        raise SymmetryError(
            f"matrices of shape {tuple(matrices.shape)} were given for {heads.count} "
            f"groups of heads of size {heads.size}: give one for each."
        )
    if heads.allowed is not None and not belongs(matrices, heads.allowed):
        raise SymmetryError(
            "positions turn the coordinates of these heads, and a matrix does not commute "
            "with that: draw them with heads_mixed_at_random."
        )
    if not bool((torch.linalg.cond(matrices) < 1e12).all()):
        raise SymmetryError(
            "a matrix is singular or nearly so: draw them with random_gl."
        )
    inverses, moved = torch.linalg.inv(matrices).mT, dict(tensors)
    for block in heads.blocks:
        tensor = moved[block.name].movedim(block.axis, 0).clone()
        places, groups = block.places.to(tensor.device), block.groups
        factors = (inverses if block.inverse else matrices)[groups].to(tensor)
        parts = tensor[places]
        mixed = factors @ parts.reshape(*places.shape, -1)
        tensor[places] = mixed.reshape(parts.shape)
        moved[block.name] = tensor.movedim(0, block.axis).contiguous()
    return moved


def heads_mixed_at_random(
    tensors: Mapping[str, Tensor], heads: HeadMatrices, seed: int, spread: float
) -> dict[str, Tensor]:
    """`mix_heads` by random matrices with singular values in exp(±spread), or about that."""
    if heads.allowed is None:
        drawn = random_gl(heads.count, heads.size, seed, spread)
    else:
        drawn = random_commuting(heads.count, heads.size, heads.allowed, seed, spread)
    return mix_heads(tensors, heads, drawn)
