"""Tiny float64 networks with dense derivatives, for the tests of explicit maps."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.func import functional_call

from flatgauge.vectors import Params, ravel, unravel


def mlp(widths: list[int], seed: int, bias: bool = True) -> nn.Sequential:
    modules: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        modules += [nn.Linear(inputs, outputs, bias=bias), nn.ReLU()]
    return randomized(nn.Sequential(*modules[:-1]), seed)


def convnet(seed: int, groups: int = 1) -> nn.Sequential:
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 6, 3, groups=groups),
        nn.LeakyReLU(0.1),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(24, 3),
    )
    return randomized(net, seed)


def randomized(net: nn.Sequential, seed: int) -> nn.Sequential:
    """Float64 standard normal entries, so that no bias is zero by default."""
    random = torch.Generator().manual_seed(seed)
    net = net.double()
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.copy_(
                torch.randn(parameter.shape, generator=random, dtype=torch.float64)
            )
    return net


def normal(*shape: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=random, dtype=torch.float64)


def params_of(model: nn.Module) -> Params:
    return {name: tensor.detach() for name, tensor in model.named_parameters()}


def squared_loss(
    model: nn.Module, inputs: Tensor, targets: Tensor
) -> Callable[[Params], Tensor]:
    def loss(params: Params) -> Tensor:
        outputs = functional_call(model, params, (inputs,))
        return ((outputs - targets) ** 2).sum(-1).mean()

    return loss


def gradient(loss: Callable[[Params], Tensor], params: Params) -> Params:
    leaves = {name: tensor.clone().requires_grad_() for name, tensor in params.items()}
    grads = torch.autograd.grad(loss(leaves), list(leaves.values()))
    return dict(zip(leaves, grads, strict=True))


def hessian(loss: Callable[[Params], Tensor], params: Params) -> Tensor:
    def flat_loss(flat: Tensor) -> Tensor:
        return loss(unravel(flat, params))

    matrix = torch.autograd.functional.hessian(flat_loss, ravel(params))
    assert isinstance(matrix, Tensor)
    return matrix


def assert_close(left: Params, right: Params, tolerance: float = 1e-13) -> None:
    assert left.keys() == right.keys()
    for name, tensor in left.items():
        torch.testing.assert_close(tensor, right[name], rtol=tolerance, atol=tolerance)
