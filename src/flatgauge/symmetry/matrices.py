"""What the parameters of a network are used as, seen while it runs once."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from flatgauge.errors import SymmetryError
from flatgauge.uses import Matrices, Watcher


def used_matrices(
    model: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> dict[str, Matrices]:
    """The parameters that are used as matrices on the example inputs.

    Query, key and value of one matrix are not told apart here: they share its inputs,
    and their rows are independent anyway.

    Raises:
        SymmetryError: if the network does not run on them.
    """
    try:
        twin = copy.deepcopy(model).eval()
        for parameter in twin.parameters():
            # Each on memory of its own, in the order of its entries.
            parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)
        watcher = Watcher(dict(twin.named_parameters()))
        given, named = pytree.tree_map(_copy, (args, dict(kwargs)))
        watcher.inputs([list(given), named])
        with torch.no_grad(), torch.random.fork_rng(), watcher:
            twin(*given, **named)
    except Exception as error:
        raise SymmetryError(
            f"the network could not be run on the example inputs ({error}): pass inputs "
            "that it accepts."
        ) from error
    return watcher.described(apart=False)


def _copy(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) else leaf
