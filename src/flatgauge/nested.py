"""Tensors inside tuples, lists and mappings, at any depth.

What counts as a container, and how it is built anew, is said in `_parts` and `_rebuilt`
alone. (Torch's own walker of such trees is not public.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import PackedSequence


def leaves(value: Any) -> Iterator[Any]:
    """All that is no container, in order; None is a leaf."""
    parts = _parts(value)
    if parts is None:
        yield value
    else:
        for part in parts.values():
            yield from leaves(part)


def map_leaves(function: Callable[..., Any], first: Any, *others: Any) -> Any:
    """The structure of `first` with the function of the leaves at each place.

    Args:
        function: of one leaf of each.
        first: any nested value.
        others: values of the same structure; keys may come in another order.

    Raises:
        ValueError: if the structures differ.

    >>> map_leaves(max, {"a": 1, "b": (2, 5)}, {"b": [4, 3], "a": 0})
    {'a': 1, 'b': (4, 5)}
    """
    parts = [_parts(value) for value in (first, *others)]
    known = [one for one in parts if one is not None]
    if not known:
        return function(first, *others)
    if len(known) < len(parts) or any(one.keys() != known[0].keys() for one in known):
        raise ValueError("the structures of nested values differ.")
    found = [map_leaves(function, *(one[key] for one in known)) for key in known[0]]
    return _rebuilt(first, found)


def tensors_in(value: Any) -> list[Tensor]:
    """Every tensor, in order."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, Tensor)]


def made_of_tensors(value: Any) -> bool:
    """Whether there is nothing but tensors, and None where one is left out."""
    return all(leaf is None or isinstance(leaf, Tensor) for leaf in leaves(value))


def map_nested(function: Callable[[Tensor], Tensor], value: Any) -> Any:
    """The same with the function of every tensor; other leaves stay."""
    return map_leaves(
        lambda leaf: function(leaf) if isinstance(leaf, Tensor) else leaf, value
    )


def concatenated(values: list[Any]) -> Any:
    """Tensors of equal structures, one after the other along their first dimension.

    Raises:
        TypeError: if there is something else than tensors.
        ValueError: if the structures differ.
    """
    return map_leaves(
        lambda *same: None if same[0] is None else torch.cat(same), *values
    )


def row_layout(value: Any) -> Any:
    """Equal for values that can be concatenated."""
    return map_leaves(
        lambda leaf: (
            (leaf.shape[1:], leaf.dtype) if isinstance(leaf, Tensor) else type(leaf)
        ),
        value,
    )


def _parts(value: Any) -> dict[Any, Any] | None:
    """What a container holds, by key or place; None for a leaf."""
    if isinstance(value, PackedSequence):
        # Its other tensors say how the data are packed, and are none of the user's.
        return {"data": value.data, "packing": PackedSequence}
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, tuple | list):
        return dict(enumerate(value))
    return None


def _rebuilt(like: Any, parts: list[Any]) -> Any:
    """A container of the same kind with other parts; any mapping becomes a dict."""
    if isinstance(like, PackedSequence):
        return like._replace(data=parts[0])
    if isinstance(like, Mapping):
        return dict(zip(like, parts, strict=True))
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*parts)
    return type(like)(parts)
