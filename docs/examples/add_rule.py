"""Teach the discovery of symmetries an operator that it does not know."""

import warnings

import torch
from torch import Tensor, nn

import flatgauge as fg


@torch.library.custom_op("docs::squared_relu", mutates_args=())
def squared_relu(x: Tensor) -> Tensor:
    return torch.relu(x) ** 2


@squared_relu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(squared_relu(self.first(x)))


torch.manual_seed(0)
model, inputs = Net(), torch.randn(5, 4)

# Unknown: its inputs and outputs are held fixed, and it is named.
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    group = fg.symmetries(model, inputs)
print("before:", group.dimension, "rescalings; not understood:", *group.unsupported)
assert group.dimension == 0
assert caught


@fg.scale_rule("docs::squared_relu")
def rule(site, x):
    """relu(c x)² = c² relu(x)²: log-scales are doubled."""
    return x * 2.0


group = fg.symmetries(model, inputs, strict=True)
print("after: ", group.dimension, "rescalings, one for each hidden unit")
assert group.dimension == 8

element = group.random_element(seed=0, spread=0.5)
twin = group.act(model.double(), element)
change = (twin(inputs.double()) - model(inputs.double())).abs().max().item()
assert change < 1e-12
