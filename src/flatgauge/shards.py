"""Vectors of which every process holds some rows.

A parameter of a sharded model is a `DTensor` of torch.distributed, cut along its first
dimension as FSDP2 cuts it; so is every tensor of a named vector. Solvers lay such vectors
out flat: each process has a `Piece`, the entries of its own rows. Entrywise work is done
piece by piece. Sums over entries are sums over processes, too, and go through `added`.
"""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, ClassVar, TypeGuard

import torch
import torch.distributed as dist
from torch import Tensor

from flatgauge.errors import ModelError

ENTRYWISE = frozenset(
    """
    __get__ __getitem__ __setitem__ __len__ __add__ __radd__ __iadd__ __sub__ __rsub__
    __isub__ __mul__ __rmul__ __imul__ __truediv__ __itruediv__ __neg__ abs add add_ sub
    sub_ mul mul_ div div_ neg square sqrt reciprocal maximum clone copy_ detach to double
    float contiguous
    is_contiguous new_empty new_zeros empty_like zeros_like numel element_size dim size
    split unbind stack cat unsqueeze transpose t reshape view as_subclass requires_grad_
    clamp clamp_min where zero_ type_as is_floating_point untyped_storage
    """.split()  # noqa: SIM905 (a column of words is easier to read)
)
"""What may be done with a piece: no result mixes entries of different rows."""


def is_sharded(tensor: object) -> TypeGuard[Any]:
    """Whether a tensor is a DTensor; to import that class takes long."""
    known = sys.modules.get("torch.distributed.tensor")
    return known is not None and isinstance(tensor, known.DTensor)


class Piece(Tensor):
    """The entries of one process in flat vectors that several share, as the last axis."""

    mesh: ClassVar[Any]

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        """Refuse what would give each process another number."""
        name = getattr(func, "__name__", "")
        if name not in ENTRYWISE:
            raise TypeError(f"'{name}' of a piece of a vector: see solvers/inner.py.")
        return super().__torch_function__(func, types, args, kwargs or {})


def plain(tensor: Tensor) -> Tensor:
    """The entries of this process, as an ordinary tensor."""
    return tensor.as_subclass(Tensor) if isinstance(tensor, Piece) else tensor


def added(value: Tensor, *parts: Tensor) -> Tensor:
    """A sum over the entries of this process, added up over all that have a piece."""
    for part in parts:
        if isinstance(part, Piece):
            dist.all_reduce(value, group=part.mesh.get_group())
            return value
    return value


def flat(tensor: Tensor) -> Tensor:
    """All entries, or a piece with those of this process."""
    if not is_sharded(tensor):
        return tensor.reshape(-1)
    own = by_rows(tensor).to_local().reshape(-1)
    return own.as_subclass(_piece_of(tensor.device_mesh))


def by_rows(tensor: Any) -> Any:
    """A DTensor, cut along its first dimension if it is not."""
    from torch.distributed.tensor import Shard

    if tuple(tensor.placements) == (Shard(0),):
        return tensor
    return tensor.redistribute(placements=[Shard(0)])


def largest_entry(vector: Tensor) -> Tensor:
    """Max |x| over all entries."""
    own = plain(vector).abs()
    most = own.max() if own.numel() else own.new_zeros(())
    if isinstance(vector, Piece):
        dist.all_reduce(most, dist.ReduceOp.MAX, group=vector.mesh.get_group())
    return most


def longest(vector: Tensor) -> int:
    """The entries of a flat vector, or of the longest of its pieces."""
    count = vector.numel()
    if not isinstance(vector, Piece):
        return count
    most = torch.tensor(count, device=vector.device)
    dist.all_reduce(most, dist.ReduceOp.MAX, group=vector.mesh.get_group())
    return int(most)


@cache
def _piece_of(mesh: Any) -> type[Piece]:
    return type("Piece", (Piece,), {"mesh": mesh})


def own_entries(tensor: Tensor) -> int:
    """How many of them this process has."""
    return tensor.to_local().numel() if is_sharded(tensor) else tensor.numel()


def own_range(tensor: Tensor) -> range:
    """Their places among all, row by row."""
    if not is_sharded(tensor):
        return range(tensor.numel())
    rows = own_rows(tensor.shape[0], tensor.device_mesh)
    each = tensor.numel() // max(tensor.shape[0], 1)
    return range(rows.start * each, rows.stop * each)


def own_rows(count: int, mesh: Any) -> slice:
    """As torch.chunk deals them: later processes may have fewer, or none."""
    each = -(-count // mesh.size())
    start = min(each * mesh.get_local_rank(), count)
    return slice(start, min(start + each, count))


def like(own: Tensor, space: Tensor) -> Tensor:
    """The entries of this process as a tensor of a vector like `space`."""
    if not is_sharded(space):
        return own.view(space.shape)
    part = plain(own).view(space.to_local().shape)
    return _from_rows(part, space.shape, space.device_mesh)


def cut(whole: Tensor, space: Tensor) -> Tensor:
    """A tensor that every process has, as one of which each has its rows."""
    if not is_sharded(space):
        return whole
    if is_sharded(whole):
        return by_rows(whole)
    return cut_along(whole, space.device_mesh)


def cut_along(whole: Tensor, mesh: Any) -> Tensor:
    """The same, over the processes of a mesh."""
    if not whole.ndim:
        raise ModelError(
            "a parameter without dimensions has no rows to share: leave it out by params=, "
            "or give it one dimension."
        )
    return _from_rows(whole[own_rows(len(whole), mesh)].clone(), whole.shape, mesh)


def joined(tensor: Tensor) -> Tensor:
    """A tensor that every process has: of a sharded one, all rows."""
    return tensor.full_tensor() if is_sharded(tensor) else tensor


def number(value: Tensor) -> float:
    """What a tensor without dimensions holds.

    Of a sum over the rows of all processes, float() would be this process's part.
    """
    return float(joined(value))


def _from_rows(part: Tensor, shape: torch.Size, mesh: Any) -> Tensor:
    from torch.distributed.tensor import DTensor, Shard

    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(
        part.contiguous(), mesh, [Shard(0)], run_check=False, shape=shape, stride=stride
    )
