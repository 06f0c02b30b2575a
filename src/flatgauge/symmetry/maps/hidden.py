"""Maps of hidden units, found in any network by `symmetry.hidden`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from flatgauge.errors import SymmetryError
from flatgauge.shapes import Float, Int
from flatgauge.symmetry.maps.head_matrices import random_gl
from flatgauge.vectors import generator

Tensors = Mapping[str, Tensor]


@dataclass(frozen=True)
class Part:
    """A tensor that has to do with hidden units.

    Attributes:
        name: of the parameter or buffer.
        axis: the dimension that runs over units.
        units: the unit at each index of it; -1 for none.
        role: "writes" if a unit's entries are added to it, "reads" if they multiply it on
            the way out, "scales" if they multiply it and nothing else.
    """

    name: str
    axis: int
    units: Tensor
    role: Literal["writes", "reads", "scales"]


@dataclass(frozen=True)
class HiddenUnits:
    """Units that one or more linear maps write and others read.

    Attributes:
        parts: the tensors that have to do with them.
        count: how many there are.
        odd: whether a unit whose sign is turned is read with its sign turned.
        untouched: whether nothing at all happens between writing and reading.
    """

    parts: tuple[Part, ...]
    count: int
    odd: bool
    untouched: bool

    @property
    def names(self) -> frozenset[str]:
        """The tensors that have to do with them."""
        return frozenset(part.name for part in self.parts)


def permute_hidden(
    tensors: Tensors, hidden: HiddenUnits, order: Int[Tensor, " units"]
) -> dict[str, Tensor]:
    """Reorder hidden units: unit i becomes what unit order[i] was.

    Args:
        tensors: parameters and buffers by name.
        hidden: the units.
        order: a permutation of them.

    Raises:
        SymmetryError: if `order` is none.
    """
    if sorted(order.tolist()) != list(range(hidden.count)):
        raise SymmetryError(
            f"{order.tolist()} is not a permutation of {hidden.count} units."
        )

    def reorder(part: Part, blocks: Tensor) -> Tensor:
        return blocks[order.to(blocks.device)]

    return _mapped(tensors, hidden, reorder)


def flip_signs(
    tensors: Tensors, hidden: HiddenUnits, signs: Float[Tensor, " units"]
) -> dict[str, Tensor]:
    """Multiply hidden units by ±1 where they are written and where they are read.

    Args:
        tensors: parameters and buffers by name.
        hidden: the units, between whose writing and reading everything is odd.
        signs: ±1 for each.

    Raises:
        SymmetryError: if something in between is not odd, or a number is not ±1.
    """
    if not hidden.odd:
        raise SymmetryError(
            f"what happens to the units of {sorted(hidden.names)} is not odd, so their "
            "signs matter: permute them instead."
        )
    if not bool((signs.abs() == 1).all()):
        raise SymmetryError("signs are +1 or -1: give one for each unit.")

    def flip(part: Part, blocks: Tensor) -> Tensor:
        factors = signs.to(blocks).reshape([-1] + [1] * (blocks.ndim - 1))
        return blocks if part.role == "scales" else blocks * factors

    return _mapped(tensors, hidden, flip)


def mix_hidden(
    tensors: Tensors, hidden: HiddenUnits, matrix: Float[Tensor, "units units"]
) -> dict[str, Tensor]:
    """Write M u for the units u, and read with M⁻¹: B A = (B M⁻¹)(M A).

    Args:
        tensors: parameters and buffers by name.
        hidden: the units, to which nothing happens between writing and reading.
        matrix: an invertible M.

    Raises:
        SymmetryError: if something happens to the units in between, or M is singular.
    """
    if not hidden.untouched:
        raise SymmetryError(
            f"something happens to the units of {sorted(hidden.names)} before they are "
            "read, so no matrix can come in between: permute them instead."
        )
    if not float(torch.linalg.cond(matrix)) < 1e12:
        raise SymmetryError(
            "the matrix is singular or nearly so: draw one with random_gl."
        )
    inverse = torch.linalg.inv(matrix)

    def mix(part: Part, blocks: Tensor) -> Tensor:
        factor = (inverse.mT if part.role == "reads" else matrix).to(blocks)
        return torch.tensordot(factor, blocks, 1)

    return _mapped(tensors, hidden, mix)


def _mapped(
    tensors: Tensors, hidden: HiddenUnits, move: Callable[[Part, Tensor], Tensor]
) -> dict[str, Tensor]:
    """Each part as [units, places, ...], moved and put back."""
    moved = dict(tensors)
    for part in hidden.parts:
        tensor = moved[part.name].movedim(part.axis, 0)
        # A stable sort keeps the places of each unit in their order.
        order = part.units.argsort(stable=True)[int((part.units < 0).sum()) :]
        order = order.to(tensor.device)
        blocks = tensor[order].reshape(hidden.count, -1, *tensor.shape[1:])
        result = tensor.clone()
        result[order] = move(part, blocks).reshape(len(order), *tensor.shape[1:])
        moved[part.name] = result.movedim(0, part.axis).contiguous()
    return moved


def permuted_at_random(
    tensors: Tensors, hidden: HiddenUnits, seed: int, spread: float
) -> dict[str, Tensor]:
    """`permute_hidden` by a random order, which moves some unit."""
    order = torch.randperm(hidden.count, generator=generator(seed))
    if torch.equal(order, torch.arange(hidden.count)):
        order = order.roll(1)
    return permute_hidden(tensors, hidden, order)


def flipped_at_random(
    tensors: Tensors, hidden: HiddenUnits, seed: int, spread: float
) -> dict[str, Tensor]:
    """`flip_signs` by random signs, not all of which are +1."""
    signs = 2.0 * torch.randint(0, 2, (hidden.count,), generator=generator(seed)) - 1.0
    return flip_signs(tensors, hidden, signs if bool((signs < 0).any()) else -signs)


def mixed_at_random(
    tensors: Tensors, hidden: HiddenUnits, seed: int, spread: float
) -> dict[str, Tensor]:
    """`mix_hidden` by a random matrix with singular values in exp(±spread)."""
    return mix_hidden(tensors, hidden, random_gl(1, hidden.count, seed, spread)[0])
