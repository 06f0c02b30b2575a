from __future__ import annotations

import pytest
import torch
from support.cases import CASES, mlp
from torch import nn

import flatgauge as fg
from flatgauge.data import Batch
from flatgauge.piecewise.affine import few_samples, is_affine_in_each_tensor

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
Y = torch.arange(6) % 3
PIECEWISE = [
    nn.ReLU,
    nn.LeakyReLU,
    nn.PReLU,
    nn.ReLU6,
    nn.Hardtanh,
    nn.Hardshrink,
    nn.Softshrink,
    nn.RReLU,
    nn.Identity,
]
CURVED = [
    nn.Tanh,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Softplus,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.Hardswish,
    nn.Softsign,
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", PIECEWISE)
def test_piecewise_affine_activations(activation, dtype):
    objective = fg.Objective(
        mlp(4, 5, 5, 3, activation=activation), (X, Y), dtype=dtype
    )
    assert is_affine_in_each_tensor(objective)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("activation", CURVED)
def test_curved_activations(activation, dtype):
    objective = fg.Objective(
        mlp(4, 5, 5, 3, activation=activation), (X, Y), dtype=dtype
    )
    assert not is_affine_in_each_tensor(objective)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ("mlp", True),
        ("lenet", True),
        ("resnet", True),
        ("resnet-train", False),
        ("gpt", False),
        ("attention", False),
        ("encoder", False),
        ("lstm", False),
        ("tied-frozen", False),
    ],
)
def test_cases(case, expected):
    assert is_affine_in_each_tensor(CASES[case].objective()) is expected


def test_only_the_chosen_parameters_count():
    model = mlp(4, 5, 3, activation=nn.Tanh)
    last = fg.Objective(model, (X, Y), params=lambda name: name.startswith("2"))
    assert is_affine_in_each_tensor(last)
    assert fg.hessian_diagonal(last).method == "exact"


def test_outputs_that_are_no_tensor():
    class Pair(nn.Linear):
        def forward(self, x):
            return super().forward(x), x

    objective = fg.Objective(Pair(4, 3), (X, Y), lambda f, y: f[0].square().mean())
    assert not is_affine_in_each_tensor(objective)


def test_few_samples():
    batch = Batch(0, (X, Y), X, Y)
    assert few_samples(batch, 2).inputs.shape == (2, 4)
    odd = Batch(0, ((X, torch.ones(4)), Y), (X, torch.ones(4)), Y)
    assert few_samples(odd, 2) is odd
    scalar = Batch(0, (X, torch.tensor(1.0)), X, torch.tensor(1.0))
    assert few_samples(scalar, 2) is scalar
