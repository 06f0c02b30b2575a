"""A run of a user's network: checkpoints at steps, without training."""

from __future__ import annotations

from pathlib import Path

import torch
from support.users import namespace


def save_run(net: str, folder: Path, count: int, growth: float = 0.1) -> list[Path]:
    """Checkpoints of the network in a user's file, each some times the one before."""
    folder.mkdir(exist_ok=True)
    state = namespace(net)["model"]().state_dict()
    paths = []
    for index in range(1, count + 1):
        path = folder / f"net_{10 * index}.pt"
        factor = 1 + growth * index
        torch.save({name: factor * one for name, one in state.items()}, path)
        paths.append(path)
    return paths
