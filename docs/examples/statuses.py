"""What a report says when a number did not converge, or does not exist."""

import torch
from torch import nn

import flatgauge as fg

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(5, 12), nn.Tanh(), nn.Linear(12, 2)).double()
objective = fg.Objective(model, (torch.randn(50, 5), torch.randn(50, 2)), loss="mse")

found = fg.measure(objective, "hessian-spectral-norm[max_steps=2]", "pac-bayes-bound")
for name, one in found.measurements.items():
    print(f"{name}\n  {one.status.name}: {one.message}")
assert found["hessian-spectral-norm[max_steps=2]"].status is fg.Status.NOT_CONVERGED
assert found["pac-bayes-bound"].status is fg.Status.NOT_APPLICABLE
assert found["pac-bayes-bound"].value is None

try:
    fg.measure(objective, "hessian-spectral-norm[max_steps=2]", strict=True)
except fg.FlatgaugeError as error:
    print(f"\nstrict=True raises:\n  {error}")
else:
    raise AssertionError("strict=True must raise")
