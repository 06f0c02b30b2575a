"""Forward differentiation, in silence.

When torch first differentiates forward it compiles some of its rules in a way that it has
deprecated, and warns: as a FutureWarning from 2.15 on, which everybody sees, and which is an
error where warnings are errors.
"""

from __future__ import annotations

import contextlib
import importlib
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import torch


def jvp(function: Callable[..., Any], primals: tuple, tangents: tuple) -> tuple:
    """`torch.func.jvp`: the value of a function and its derivative along the tangents."""
    _load_rules()
    return torch.func.jvp(function, primals, tangents)


@cache
def _load_rules() -> None:
    with warnings.catch_warnings(), contextlib.suppress(ImportError):
        warnings.simplefilter("ignore")
        importlib.import_module("torch._decomp.decompositions_for_jvp")
