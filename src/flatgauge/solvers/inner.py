"""Inner products and combinations of long vectors, in full precision."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor

from flatgauge.isolation import precision
from flatgauge.shapes import Float
from flatgauge.shards import Piece, added, plain

PIECE = 1024
"""Entries whose products are added up in the vectors' own dtype."""

# Entries of which a copy in float64 is made at a time. On a CPU memory that is taken
# anew costs more than the arithmetic, and pieces of this size get theirs back.
LONG, LONG_ON_CPU = 2**26, 2**20


def inner_products(
    left: Float[Tensor, "a n"], right: Float[Tensor, "b n"]
) -> Float[Tensor, "a b"]:
    """The inner products of the rows of two matrices, accumulated in float64.

    A matrix product adds up all n terms in the dtype of the matrices. In float32 with
    two million entries that left Lanczos vectors orthogonal to 1.7e-3 only. Here short
    pieces are multiplied at full speed, and their results are added up in float64.

    >>> import torch
    >>> inner_products(torch.ones(1, 3000), torch.ones(1, 3000)).item()
    3000.0
    """
    with full_precision(left):
        return _inner_products(left, right)


def dot(left: Float[Tensor, " n"], right: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The inner product of two vectors in float64.

    >>> import torch
    >>> dot(torch.ones(3), torch.ones(3)).item()
    3.0
    """
    if isinstance(left, Piece):
        return added(_dot(plain(left), plain(right)), left)
    return _dot(left, right)


def _dot(left: Tensor, right: Tensor) -> Tensor:
    most = _most(left)
    if left.numel() <= most:
        return torch.dot(left.double(), right.double())
    pieces = zip(left.split(most), right.split(most), strict=True)
    return torch.stack([_dot(*pair) for pair in pieces]).sum()


def norm(vector: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """The norm in float64: in float32 those of long vectors are off by many roundings.

    >>> import torch
    >>> norm(torch.ones(9)).item()
    3.0
    """
    if isinstance(vector, Piece):
        return added(_norm(plain(vector)).square(), vector).sqrt()
    return _norm(vector)


def _norm(vector: Tensor) -> Tensor:
    most = _most(vector)
    if vector.numel() <= most:
        return vector.double().norm()
    return torch.stack([_norm(piece) for piece in vector.split(most)]).norm()


def _most(vector: Tensor) -> int:
    return LONG_ON_CPU if vector.device.type == "cpu" else LONG


def remove_parts_along(
    rows: Float[Tensor, "m n"],
    vector: Float[Tensor, " n"],
    spare: Float[Tensor, " n"],
) -> None:
    """Take from the vector, in place, its components along orthonormal rows.

    Without the context of `full_precision`, in which the caller has to be.

    Args:
        rows: the orthonormal rows.
        vector: what is changed.
        spare: memory for another one.
    """
    shares = _inner_products(rows, vector[None])[:, 0]
    torch.mm(shares.to(rows.dtype)[None], plain(rows), out=plain(spare)[None])
    vector.sub_(spare)


def _inner_products(left: Tensor, right: Tensor) -> Tensor:
    if isinstance(left, Piece):
        return added(_products_of_rows(plain(left), plain(right)), left)
    return _products_of_rows(left, right)


def _products_of_rows(left: Tensor, right: Tensor) -> Tensor:
    count = left.shape[1] // PIECE
    whole = count * PIECE
    first = left[:, :whole].unflatten(1, (count, PIECE)).transpose(0, 1)
    second = right[:, :whole].unflatten(1, (count, PIECE)).permute(1, 2, 0)
    rest = left[:, whole:] @ right[:, whole:].T
    return (first @ second).double().sum(dim=0) + rest.double()


def combination(
    weights: Float[Tensor, "... m"], rows: Float[Tensor, "m n"]
) -> Float[Tensor, "... n"]:
    """The rows, added up with each set of weights, or with the only one."""
    with full_precision(rows):
        if isinstance(rows, Piece):
            made = plain(weights).to(rows.dtype) @ plain(rows)
            return made.as_subclass(type(rows))
        return weights.to(rows.dtype) @ rows


def full_precision(like: Tensor) -> AbstractContextManager[None]:
    """Users may have made float32 products coarser; no other dtype has such a choice."""
    return precision(like.device) if like.dtype == torch.float32 else nullcontext()
