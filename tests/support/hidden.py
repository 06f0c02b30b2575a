"""A small network whose hidden layer a test fills in."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from flatgauge.symmetry import Group
from flatgauge.symmetry.verify import perturbed, relative_change


def change(model: nn.Module, inputs: Tensor, group: Group) -> float:
    """The relative change of the outputs under a random element, in float64."""
    generic = perturbed(copy.deepcopy(model).double().eval())
    twin = group.act(generic, group.random_element(seed=7))
    with torch.no_grad():
        return relative_change([generic(inputs.double())], [twin(inputs.double())])


class Hidden(nn.Module):
    """A network 4-8-3 whose hidden layer is what a subclass makes of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 3)

    def hidden(self, h: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        return self.second(self.hidden(self.first(x)))


INPUTS = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
