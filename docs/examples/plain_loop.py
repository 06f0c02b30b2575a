"""Flatness while a loop of one's own trains."""

import torch
from torch import nn

from flatgauge.integrations.monitor import FlatnessMonitor

torch.manual_seed(0)
X = torch.randn(256, 8)
y = X[:, :4].argmax(1)
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
log = print

monitor = FlatnessMonitor((X[:64], y[:64]), "hessian-trace", every=500, share=0.5)
for step in range(1, 2001):
    rows = torch.randperm(256)[:32]
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
    optimizer.step()
    for name, value in monitor(model, step).items():
        log(step, name, round(value, 3))

print(monitor.series())
