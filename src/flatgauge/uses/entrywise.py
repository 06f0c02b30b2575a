"""Operators that write weights to new memory and leave every entry recognizable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from flatgauge.uses.places import NONE, Memory, Places

Product = tuple[Memory, ...]
Terms = tuple[Product, ...]

KEEPS = {
    "clone", "_to_copy", "neg", "positive", "lift_fresh_copy", "detach_copy",
    "alias_copy", "tril", "triu", "masked_fill", "contiguous",
}  # fmt: skip
SUMS = {"add", "sub", "rsub", "where"}
PRODUCTS = {"mul", "div"}
LOOKUPS = {"index", "index_select", "gather"}
MOVES = LOOKUPS | {
    "repeat", "roll", "flip", "constant_pad_nd", "permute_copy", "transpose_copy",
    "t_copy", "view_copy", "slice_copy", "select_copy", "expand_copy",
}  # fmt: skip
JOINS = {"cat", "stack"}
NORMALIZES = {"_weight_norm_interface"}
"""A direction times a gain; the norm of the direction is taken as well."""
MOST_TERMS = 16
MOST_ENTRIES = 2**26
"""Tensors with more entries than this are not followed where that takes a table."""


def follow(
    name: str, func: Any, args: tuple[Any, ...], result: Tensor, terms_of: Callable
) -> Terms | None:
    """The products of weights whose sum an operator writes, or None if it is no such.

    Args:
        name: of the ATen operator, without its overload.
        func: the operator.
        args: its positional arguments.
        result: what it returned.
        terms_of: the products whose sum a tensor is; none for a constant.
    """
    if name in KEEPS:
        return _spread(args[0], terms_of(args[0]), result)
    if name in SUMS | PRODUCTS:
        given = [arg for arg in args if isinstance(arg, Tensor)]
        spread = [_spread(tensor, terms_of(tensor), result) for tensor in given]
        if name in SUMS:
            total = tuple(product for terms in spread for product in terms)
            return total if len(total) <= MOST_TERMS else None
        return _multiplied(name, spread)
    if name in NORMALIZES:
        return _multiplied("mul", [_spread(t, terms_of(t), result) for t in args[:2]])
    if result.numel() > MOST_ENTRIES:
        return None
    if name in MOVES:
        return _moved(name, func, args, result, terms_of(args[0]))
    if name in JOINS:
        return _joined(func, args, result, terms_of)
    return None


def _spread(tensor: Tensor, terms: Terms, result: Tensor) -> Terms:
    """The same products in the memory of the result, to whose shape they broadcast."""
    return tuple(
        tuple(
            Memory.behind(result, memory.seen_by(tensor).expand(result.shape))
            for memory in product
        )
        for product in terms
    )


def _multiplied(name: str, spread: list[Terms]) -> Terms | None:
    """One product of all factors; sums are not multiplied out."""
    if name == "div" and not spread[0]:
        return None
    several = [terms for terms in spread if terms]
    if len(several) == 1 and (name == "mul" or spread[0]):
        return several[0]
    if any(len(terms) > 1 for terms in several):
        return None
    return (tuple(memory for terms in several for memory in terms[0]),)


def _moved(
    name: str, func: Any, args: tuple[Any, ...], result: Tensor, terms: Terms
) -> Terms:
    """The numbers of the entries, moved by the operator itself."""
    rest = pytree.tree_map(lambda a: a.cpu() if isinstance(a, Tensor) else a, args[1:])
    if name == "constant_pad_nd":
        rest = (rest[0], NONE)
    return tuple(
        tuple(
            Memory.behind(
                result, Places.of(func(memory.seen_by(args[0]).numbers(), *rest))
            )
            for memory in product
        )
        for product in terms
    )


def _joined(
    func: Any, args: tuple[Any, ...], result: Tensor, terms_of: Callable
) -> Terms | None:
    """Weights and constants side by side."""
    tables = []
    for tensor in args[0]:
        terms = terms_of(tensor)
        if len(terms) > 1 or any(len(product) > 1 for product in terms):
            return None
        table = (
            terms[0][0].seen_by(tensor).numbers()
            if terms
            else torch.full(tensor.shape, NONE)
        )
        tables.append(table)
    return ((Memory.behind(result, Places.of(func(tables, *args[1:]))),),)
