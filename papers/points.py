"""A model at another point."""

from __future__ import annotations

import copy

import torch
from torch import nn

from flatgauge.errors import VectorError
from flatgauge.vectors import Params


def with_parameters(model: nn.Module, params: Params) -> nn.Module:
    """A deep copy of `model` that holds the values of `params`; nothing is shared.

    Args:
        model: the model, which stays as it is.
        params: new values for some or all of its parameters.

    Raises:
        VectorError: if a name or a shape is not the model's.
    """
    twin = copy.deepcopy(model)
    own = dict(twin.named_parameters())
    for name, tensor in params.items():
        if name not in own or own[name].shape != tensor.shape:
            raise VectorError(
                f"the model has no parameter '{name}' of shape {tuple(tensor.shape)}: "
                "start from dict(model.named_parameters())."
            )
        with torch.no_grad():
            own[name].copy_(tensor)
    return twin
