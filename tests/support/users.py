"""A user's own file, outside the repository, for the tests of the command line."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

NET = """
import torch
from torch import nn

def model():
    torch.manual_seed(0)
    layers = [nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)]
    return nn.Sequential(*layers).double()

def data():
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(10, 3, generator=random, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (10,), generator=random)

def batches():
    inputs, targets = data()
    return [(inputs[i:i + 4], targets[i:i + 4]) for i in (0, 4, 8)]

def loader():
    dataset = torch.utils.data.TensorDataset(*data())
    return torch.utils.data.DataLoader(dataset, batch_size=4)

def dataset():
    return torch.utils.data.TensorDataset(*data())

def wrong_shape():
    return torch.zeros(4, 7, dtype=torch.float64), torch.zeros(4, dtype=torch.long)

def no_model():
    return {"a": 1}

def fails():
    raise ValueError("broken on purpose\\nsecond line")

def leaves():
    raise SystemExit(5)

class Lit(nn.Module):
    # As a Lightning module is: its network is an attribute, its arguments were saved.
    def __init__(self, width, lr=0.1):
        super().__init__()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(3, width), nn.Linear(width, 3)).double()

    def forward(self, x):
        return self.model(x)

class DataModule:
    # As Lightning calls one.
    def prepare_data(self):
        self.calls = ["prepare"]

    def setup(self, stage):
        self.calls.append(stage)

    def train_dataloader(self):
        assert self.calls == ["prepare", "fit"]
        return loader()

constant = 3
"""


@pytest.fixture
def net(tmp_path, monkeypatch) -> str:
    """A user's file, outside the repository."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "net.py"
    path.write_text(NET)
    return str(path)


def namespace(net: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    exec(Path(net).read_text(), found)
    return found
