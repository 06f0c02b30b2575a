"""Which numbers survive on this very network?"""

import torch
from torch import nn

import flatgauge as fg

torch.manual_seed(0)
model = nn.Sequential(
    nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)
).double()
X, y = torch.randn(20, 1, 6, 6), torch.arange(20) % 5
objective = fg.Objective(model, (X, y))

print(fg.symmetries(objective), "\n")

audit = fg.audit(
    objective,
    "hessian-spectral-norm",
    "riemannian-spectral-norm[metric=node]",
    "normalized-sharpness",
    elements=2,
)
print(audit)
assert not audit.violations
