"""Two checkpoints of one network, side by side."""

import copy

import torch
from torch import nn

import flatgauge as fg

torch.manual_seed(0)
X = torch.randn(200, 8, dtype=torch.float64)
y = (X[:, :4].argmax(1) + (torch.rand(200) < 0.1)) % 4
start = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).double()


def trained(batch: int, steps: int) -> nn.Module:
    model = copy.deepcopy(start)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        rows = torch.randperm(200)[:batch]
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
        optimizer.step()
    return model


comparison = fg.compare(
    {
        "small batch": fg.Objective(trained(batch=10, steps=400), (X, y)),
        "large batch": fg.Objective(trained(batch=200, steps=400), (X, y)),
    }
)
print(comparison)
assert len(comparison.rows()) == 9 * 2
