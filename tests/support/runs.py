"""A run of a user's network: checkpoints at steps, without training."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

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


def save_study(net: str, folder: Path, count: int) -> list[dict[str, Any]]:
    """A folder with checkpoints and a table: the gap grows as the weights do."""
    paths = save_run(net, folder, count, growth=0.05)
    rows = [
        {
            "checkpoint": path.name,
            "gap": 0.01 * index + 0.02 * (index % 3),
            "accuracy": 1 - 0.01 * index,
            "width": index % 2,
            "dataset": "ab"[index // 2 % 2],
        }
        for index, path in enumerate(paths)
    ]
    with (folder / "study.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows(rows)
    return rows
