from __future__ import annotations

import torch
from torch import nn

import flatgauge as fg
from flatgauge.output_layer import output_layer


class Heads(nn.Module):
    """A head for each side of x₀ = 0; `mixed` sends the second through a ReLU."""

    def __init__(self, mixed: bool = False):
        super().__init__()
        self.body = nn.Linear(4, 5)
        self.first, self.second = nn.Linear(5, 3), nn.Linear(5, 3)
        self.mixed = mixed

    def forward(self, x):
        h = self.body(x).relu()
        second = self.second(h).relu() if self.mixed else self.second(h)
        return torch.where(x[:, :1] > 0, self.first(h), second)


def objective(model: nn.Module) -> fg.Objective:
    x = torch.randn(8, 4, generator=torch.Generator().manual_seed(0))
    x[:, 0] = x[:, 0].abs() * torch.tensor([1.0] * 4 + [-1.0] * 4)
    return fg.Objective(model.double(), (x, torch.arange(8) % 3), batch_size=4)


def test_a_head_that_only_a_later_batch_reaches():
    found = output_layer(objective(Heads()))
    heads = ("first", "second")
    assert found == {f"{h}.{role}": 0 for h in heads for role in ("weight", "bias")}


def test_what_a_later_batch_bends_is_no_output_layer():
    torch.manual_seed(0)
    found = output_layer(objective(Heads(mixed=True)))
    assert set(found) == {"first.weight", "first.bias"}
