"""Operators in plain arithmetic where torch cannot differentiate its own twice.

Second derivatives of hardswish, hardsigmoid and embedding bags are missing, those of the
fused weight norm are wrong. References are computed with these instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from sys import modules
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.nn import functional as F


def hardsigmoid(x: Tensor, inplace: bool = False) -> Tensor:
    return F.relu6(x + 3) / 6


def hardswish(x: Tensor, inplace: bool = False) -> Tensor:
    return x * hardsigmoid(x)


def embedding_bag(words: Tensor, weight: Tensor, *rest: Any, **more: Any) -> Tensor:
    """Bags of equal sizes, summed."""
    return F.embedding(words, weight).sum(1)


def weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    axes = [axis for axis in range(v.ndim) if axis != dim % v.ndim]
    return g * v / v.square().sum(axes, keepdim=True).sqrt()


@contextmanager
def twice_differentiable() -> Iterator[None]:
    with ExitStack() as stack:
        for place, name, function in (
            (F, "hardsigmoid", hardsigmoid),
            (F, "hardswish", hardswish),
            (F, "embedding_bag", embedding_bag),
            (torch, "_weight_norm", weight_norm),
            (modules["torch.nn.utils.weight_norm"], "_weight_norm", weight_norm),
        ):
            stack.enter_context(patch.object(place, name, function))
        yield
