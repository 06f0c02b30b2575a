"""An orthonormal basis of long vectors that lives within a budget of memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from flatgauge.curvature.operator import SymmetricOperator
from flatgauge.host_memory import available_memory
from flatgauge.memory import BASIS_VECTORS, basis_room, memory_budget
from flatgauge.shapes import Float
from flatgauge.shards import longest
from flatgauge.solvers.ferry import Ferry
from flatgauge.solvers.inner import combination, full_precision, remove_parts_along
from flatgauge.vectors import own_bytes

# The part of the host's available memory that it may fill after that.
HOST_SHARE = 0.5
# Bytes of several rows that are allocated, or brought to the device, at once; on the device
# an eighth of its room, where that is more.
BLOCK = 2**28
# A restart needs some rows to keep, and some to go on with.
FEWEST_ROWS = 6


@dataclass(frozen=True)
class Room:
    """Bytes for a basis on the vectors' own device, and in host memory after that."""

    device: int
    host: int = 0


def room_for(operator: SymmetricOperator) -> Room:
    """What a basis may take: of the operator's `memory`, then of the host's.

    A device of its own gives 30 % of the budget, or more for a few long vectors, then the
    host half of what is available. On a CPU there is one memory only: 30 % of what was
    set, or half of what is available.
    """
    device = next(iter(operator.space.values())).device
    least = operator.ranks.least
    host = least(int(HOST_SHARE * available_memory()))
    if device.type == "cpu" and operator.memory is None:
        return Room(host)
    budget = memory_budget(device, operator.memory)
    share = least(basis_room(device, budget, own_bytes(operator.space)))
    return Room(share) if device.type == "cpu" else Room(share, host)


class Basis:
    """Orthonormal flat vectors, as rows of blocks that grow with them.

    The first blocks are on the vectors' device, up to its room; later ones are in host
    memory and are brought to the device one after another whenever they are used, which
    takes longer than what else a step does.

    Args:
        like: a flat vector with the length, dtype and device of all.
        room: the bytes that it may take. At least `FEWEST_ROWS` vectors are held.
        most: how many vectors there can be at all.

    >>> import torch
    >>> basis = Basis(torch.zeros(3), Room(device=24, host=48), most=3)
    >>> for row in torch.eye(3)[:2]:
    ...     basis.append(row)
    >>> vector = torch.tensor([1.0, 2.0, 3.0])
    >>> basis.remove_parts(vector, spare=torch.empty(3))
    >>> vector
    tensor([0., 0., 3.])
    """

    def __init__(self, like: Float[Tensor, " n"], room: Room, most: int):
        self._like = like.new_empty(0)
        self._width = like.numel()
        self._room = room
        self._row_bytes = max(1, longest(like) * like.element_size())
        self._on_device = room.device // self._row_bytes
        in_host = room.host // self._row_bytes
        if in_host == 0:
            self._on_device = max(self._on_device, FEWEST_ROWS)
        self.capacity = min(max(self._on_device + in_host, FEWEST_ROWS), most)
        self._blocks: list[Tensor] = []
        self._near = 0
        self._ferry = Ferry(like)
        self._taken = 0

    def __len__(self) -> int:
        """The number of vectors."""
        return self._taken

    @property
    def full(self) -> bool:
        """Whether there is no room for another vector."""
        return self._taken >= self.capacity

    @property
    def crowded(self) -> bool:
        """Whether a restart costs less than another vector, which would be in host memory."""
        return self.full or self._taken >= max(self._on_device, BASIS_VECTORS)

    @property
    def allocated(self) -> int:
        """How many vectors there is memory for by now."""
        return sum(block.shape[0] for block in self._blocks)

    @property
    def offloaded(self) -> int:
        """How many of the vectors are in the room of the host."""
        return max(0, self._taken - self._on_device)

    def append(self, vector: Float[Tensor, " n"]) -> None:
        """Add a unit vector that is orthogonal to all others."""
        offset = self._taken
        for block in self._blocks:
            if offset < block.shape[0]:
                break
            offset -= block.shape[0]
        else:
            block = self._grown()
        self._ferry.put(vector, block[offset])
        self._taken += 1

    def remove_parts(
        self,
        vector: Float[Tensor, " n"],
        spare: Float[Tensor, " n"],
        again: bool = False,
    ) -> None:
        """Take from the vector, in place, its components along the basis.

        Blocks that have to be brought are used twice at once, and no more if this is done
        again: first the newest, along which products have their large components, so that
        what rounding leaves of these along others is taken, too. Without the context of
        `full_precision`, in which the caller has to be; `spare` is memory for a vector.
        """
        filled = self._filled()
        for block in filled[: self._near]:
            remove_parts_along(block, vector, spare)
        for block in [] if again else reversed(filled[self._near :]):
            brought = self._ferry.brought(block)
            for _ in range(2):
                remove_parts_along(brought, vector, spare)

    def combine(self, weights: np.ndarray) -> Float[Tensor, "n k"]:
        """The vectors, added up with each column of an m x k matrix of weights."""
        factors = torch.as_tensor(weights).to(self._like)
        total = self._like.new_zeros(factors.shape[1], self._width)
        begin = 0
        for block in self._filled():
            piece = factors[begin : begin + block.shape[0]]
            total += combination(piece.T, self._ferry.brought(block))
            begin += block.shape[0]
        return total.T

    def rotate(self, weights: np.ndarray) -> None:
        """Replace the m vectors by their combinations with m x k weights, in place.

        The columns of the weights have to be orthonormal. It goes along the vectors piece
        by piece, so that no second basis is held.
        """
        factors = torch.as_tensor(weights.T).to(self._like)
        width = max(1, BLOCK // (self._taken * self._like.element_size()))
        for begin in range(0, self._width, width):
            parts = [block[:, begin : begin + width] for block in self._filled()]
            there = torch.cat([self._ferry.brought(part) for part in parts])
            turned = combination(factors, there)
            for part in parts:
                part[: len(turned)].copy_(turned[: len(part)])
                turned = turned[len(part) :]
        self._taken = factors.shape[0]

    def _filled(self) -> list[Tensor]:
        taken, filled = self._taken, []
        for block in self._blocks:
            if taken <= 0:
                break
            filled.append(block[:taken])
            taken -= block.shape[0]
        return filled

    def _grown(self) -> Tensor:
        # Blocks are never copied; they grow so that their number stays small, unless a
        # few rows are so large that those not yet in use would matter.
        here = self._taken < self._on_device
        limit = min(self._on_device, self.capacity) if here else self.capacity
        block = max(BLOCK, self._room.device // 8) if here else BLOCK
        rows = min(max(8, self._taken // 2), max(1, block // self._row_bytes))
        rows = min(rows, limit - self._taken)
        device = self._like.device if here else "cpu"
        self._near += here
        self._blocks.append(self._like.new_empty(rows, self._width, device=device))
        return self._blocks[-1]


def orthogonalized(
    vector: Float[Tensor, " n"], deflated: Float[Tensor, "k n"], basis: Basis
) -> Float[Tensor, " n"]:
    """The vector less its components along both, twice, since once leaves rounding."""
    # Memory that is taken anew for every block would cost more than the arithmetic.
    vector, spare = vector.clone(), torch.empty_like(vector)
    with full_precision(vector):
        for again in (False, True):
            if deflated.shape[0]:
                remove_parts_along(deflated, vector, spare)
            basis.remove_parts(vector, spare, again)
    return vector
