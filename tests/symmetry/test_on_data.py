from __future__ import annotations

import pytest
import torch
from torch import nn

import flatgauge as fg
from flatgauge.errors import SymmetryError


class Turning(nn.Module):
    """A ReLU network whose longer inputs pass a tanh instead."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x):
        h = self.body(x[:, :3])
        return self.head(h.relu() if x.shape[1] == 3 else h.tanh())


def batch(length: int):
    x = torch.randn(6, length, generator=torch.Generator().manual_seed(length))
    return x.double(), torch.arange(6) % 2


def test_a_path_that_only_later_batches_take():
    model = Turning().double()
    plain = fg.Objective(model, [batch(3), batch(3)])
    assert fg.symmetries(plain).dimension == 4
    turning = fg.Objective(model, [batch(3), batch(3), batch(5)])
    with pytest.raises(SymmetryError, match="batch 2"):
        fg.symmetries(turning)


class Sleeping(nn.Module):
    """A branch that only some samples wake up."""

    def __init__(self):
        super().__init__()
        self.always, self.sometimes = nn.Linear(3, 4), nn.Linear(3, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        h, awake = self.always(x), x[:, 0] > 0.3
        if bool(awake.any()):
            h = h + awake[:, None] * self.sometimes(x)
        return self.head(h.relu())


@pytest.mark.parametrize("mode", ["eval", "train"])
def test_a_branch_that_only_later_samples_wake_up(mode):
    model = Sleeping().double()
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0)).double()
    x = x[x[:, 0].argsort()]
    objective = fg.Objective(model, [(x, torch.arange(12) % 2)], mode=mode)
    before = objective.value()
    group = fg.symmetries(objective)
    assert group.dimension == 4
    twin = group.act(objective.model(), group.random_element(seed=1))
    assert objective.with_model(twin).value() == pytest.approx(before, rel=1e-12)
