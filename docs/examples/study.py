"""24 small networks: which measure orders them by the gap in accuracy?"""

import csv
import tempfile
from pathlib import Path

import torch
from torch import nn

import flatgauge as fg

folder = Path(tempfile.mkdtemp())
draw = torch.Generator().manual_seed(0)
X = torch.randn(420, 8, dtype=torch.float64, generator=draw)
y = X[:, :3].argmax(1)
noisy = torch.rand(420, generator=draw) < 0.2
y[noisy] = torch.randint(0, 3, (int(noisy.sum()),), generator=draw)
data = X[:120], y[:120]


def network(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, 12), nn.Tanh(), nn.Linear(12, 3)).double()


def accuracy(model: nn.Module, part: slice) -> float:
    return (model(X[part]).argmax(1) == y[part]).double().mean().item()


rows = []
for decay in (0.0, 3e-3, 1e-2, 3e-2):
    for seed in range(6):
        model = network(seed)
        optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2, weight_decay=decay)
        for _ in range(150):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(data[0]), data[1]).backward()
            optimizer.step()
        name = f"decay{decay}-seed{seed}.pt"
        torch.save(model.state_dict(), folder / name)
        gap = accuracy(model, slice(0, 120)) - accuracy(model, slice(120, None))
        rows.append({"checkpoint": name, "gap": gap, "decay": decay, "seed": seed})

with (folder / "study.csv").open("w", newline="") as file:
    writer = csv.DictWriter(file, rows[0])
    writer.writeheader()
    writer.writerows(rows)

study = fg.study(
    network(0),
    data,
    folder / "study.csv",
    ["hessian-trace", "fisher-rao-norm", "spectral-norm-product"],
    target="gap",
    hyperparameters=["decay"],
    store=folder / "results",
)
print(study, end="\n\n")
print(study.statistics["spectral-norm-product"])
study.save(folder / "study.html")
assert len(study.networks) == 24

# Weight decay itself, taken for a measure, says nothing among networks that share it.
decay = [-row["decay"] for row in rows]
blind = fg.rank_statistics(decay, [row["gap"] for row in rows], {"decay": decay})
print(f"\nweight decay alone: {blind['kendall'].shown}, ", end="")
print(f"at fixed settings {blind['kendall-at-fixed-settings'].shown}")
assert blind["kendall-at-fixed-settings"].value == 0
