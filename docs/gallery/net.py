"""A small network on digits; run, it trains from two starts and keeps checkpoints."""

from pathlib import Path

import torch
from torch import nn

from flatgauge.datasets import digits


def build() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.ReLU(), nn.Linear(32, 10)
    ).double()


def data() -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = digits()
    return images[:600].double(), labels[:600]


def train(folder: str, start: float) -> None:
    model, (images, labels) = build(), data()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(start)
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    Path(folder).mkdir(exist_ok=True)
    for step in range(1, 301):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if step % 25 == 0:
            torch.save(model.state_dict(), f"{folder}/step-{step}.pt")


if __name__ == "__main__":
    train("usual", start=1.0)
    train("large", start=4.0)
