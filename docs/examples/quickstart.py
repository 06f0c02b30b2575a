"""Train a small network on digits, measure it, audit it, and make it look sharp."""

import tempfile
from pathlib import Path

import torch
from sklearn.datasets import load_digits
from torch import nn

import flatgauge as fg

torch.manual_seed(0)
images, labels = load_digits(return_X_y=True)
X, y = torch.tensor(images[:500] / 16), torch.tensor(labels[:500])
model = nn.Sequential(nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 10)).double()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
for _ in range(100):
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(X), y).backward()
    optimizer.step()

objective = fg.Objective(model, (X, y), loss="cross-entropy", batch_size=250)
report = fg.measure(objective)
print(report)

# A number never travels alone.
found = report["normalized-sharpness"]
print(f"\n{found.value:.6g}, {found.status.name}: {found.message}")
assert found.status.trusted

# The same function at other parameters.
twin = fg.sharpen(objective, factor=1e4)
torch.testing.assert_close(twin(X), model(X), rtol=1e-10, atol=1e-10)
moved = fg.measure(objective.with_model(twin))
print("\nratio on a twin with the same outputs:")
for name in ("hessian-spectral-norm", "normalized-sharpness"):
    ratio = moved[name].value / report[name].value
    print(f"  {name}: {ratio:.3g}")
assert (
    moved["hessian-spectral-norm"].value > 9e3 * report["hessian-spectral-norm"].value
)
assert abs(moved["normalized-sharpness"].value / found.value - 1) < 1e-6

# Results are plain data, and the page is drawn from them.
with tempfile.TemporaryDirectory() as folder:
    report.to_json(Path(folder) / "report.json")
    again = fg.Report.from_json(Path(folder) / "report.json")
    again.to_html(Path(folder) / "report.html")
    assert again == report
