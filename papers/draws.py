"""Draws on the host, tensor by tensor: those that stored results were made with."""

from __future__ import annotations

import torch

from flatgauge.vectors import Params


def gaussian(space: Params, random: torch.Generator) -> Params:
    """Independent standard normal entries."""
    return {
        name: torch.randn(tensor.shape, generator=random, dtype=tensor.dtype).to(
            tensor.device
        )
        for name, tensor in space.items()
    }
