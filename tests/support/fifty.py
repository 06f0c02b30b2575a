"""Fifty samples of three classes, for tests of objectives."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from support.cases import CASES
from torch import nn
from torch.utils.data import Dataset

X = torch.randn(50, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.randint(0, 3, (50,), generator=torch.Generator().manual_seed(1))


def net() -> nn.Module:
    return CASES["mlp"].model()


def batches(*sizes: int) -> list:
    return list(zip(X.split(list(sizes)), Y.split(list(sizes)), strict=True))


def plain(model: nn.Module, x, y) -> tuple[float, dict]:
    """Value and gradient by torch alone."""
    own = {n: p for n, p in model.named_parameters() if p.requires_grad}
    loss = F.cross_entropy(model(x), y)
    slopes = torch.autograd.grad(loss, list(own.values()))
    return float(loss.detach()), dict(zip(own, slopes, strict=True))


class Table(Dataset):
    def __len__(self):
        return 50

    def __getitem__(self, index):
        return X[index], Y[index]
