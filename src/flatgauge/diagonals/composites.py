"""Functions of torch that a mode sees as one call, and that use parameters inside.

They are written in Python, and ask first whether a mode wants them. It gets the whole call,
and is off while it runs it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch.nn.functional as F

COMPOSITES: set[Any] = {F.multi_head_attention_forward}
"""Those that are looked into."""


def opened(function: Any) -> Callable[..., Any]:
    """The same function, which does not ask; what it calls still does.

    A new copy for each call, since the names that it looks up may be replaced meanwhile.
    `torch.overrides.redispatch_function` does the same, from torch 2.13 on.
    """
    names = {**function.__globals__, "has_torch_function": lambda _: False}
    code, defaults = function.__code__, function.__defaults__
    copy = FunctionType(code, names, function.__name__, defaults, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
