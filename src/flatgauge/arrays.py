"""Arrays of numpy as tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from flatgauge.errors import DataError
from flatgauge.nested import leaves, map_leaves


def as_tensors(data: Any) -> Any:
    """The data with tensors for arrays, which share their memory; else as they are.

    >>> as_tensors((np.ones(2), [1]))
    (tensor([1., 1.], dtype=torch.float64), [1])
    """
    held = isinstance(data, tuple | list) and any(
        isinstance(leaf, np.ndarray) for leaf in leaves(data)
    )
    return map_leaves(_tensor, data) if held else data


def _tensor(leaf: Any) -> Any:
    if not isinstance(leaf, np.ndarray):
        return leaf
    try:
        return _shared(leaf)
    except TypeError as error:
        raise DataError(
            f"the data hold an array of {leaf.dtype}, which torch does not have: convert "
            "it to numbers first."
        ) from error


def _shared(array: np.ndarray) -> Tensor:
    # Torch warns of arrays that may not be written, and refuses negative strides.
    plain = array if array.flags.writeable else array.copy()
    return torch.from_numpy(np.ascontiguousarray(plain))
