"""Tables 2 and 3 of Rangamani et al. 2019: the layer metric under their rescalings."""

from __future__ import annotations

import pytest
import torch
from support.cases import mlp
from torch import nn

import flatgauge as fg
from flatgauge.symmetry.maps.chain import Chain
from flatgauge.symmetry.maps.rescale import rescale_layers

NAME = "riemannian-spectral-norm"


def fully_connected() -> nn.Module:
    """F1: 784-300-100-10."""
    return mlp(784, 300, 100, 10)


def convolutional() -> nn.Module:
    """C1: two 5x5 convolutions with pooling, then 320-120-84-10."""
    return nn.Sequential(
        nn.Conv2d(1, 10, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(10, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(320, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
        nn.Linear(84, 10),
    )


ROWS = [
    (fully_connected, (784,), 500, (5, 4, 1 / 20)),
    (fully_connected, (784,), 500, (100, 30, 1 / 3000)),
    (convolutional, (1, 28, 28), 100, (5, 4, 3, 2, 1 / 120)),
    (convolutional, (1, 28, 28), 100, (50, 24, 30, 1 / 6, 1 / 6000)),
    (fully_connected, (784,), 500, (4, 2, 1 / 8)),
]


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("build", "shape", "count", "factors"), ROWS)
def test_relative_difference(build, shape, count, factors, dtype):
    torch.manual_seed(0)
    model = build()
    data = (torch.randn(count, *shape), torch.randint(0, 10, (count,)))
    objective = fg.Objective(model, data, dtype=dtype)
    moved = objective.at(
        rescale_layers(
            objective.parameters, Chain.of(model), [float(f) for f in factors]
        )
    )
    before, after = (fg.measure(one, NAME)[NAME].value for one in (objective, moved))
    difference = abs(after - before) / before
    exact = all(float(f).hex().startswith("0x1.0000000000000p") for f in factors)
    limit = 1e-12 if dtype == torch.float64 else 1e-5
    assert difference <= (0.0 if exact else limit)
