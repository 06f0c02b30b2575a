"""What a training leaves behind, to be compared bit for bit."""

from __future__ import annotations

from typing import Any

import torch
from support.untouched import global_state
from torch import Tensor, nn

from flatgauge.nested import leaves


def left_behind(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[Any]:
    """Weights, buffers, modes, gradients, the optimizer, random states and switches."""
    modes = [module.training for module in model.modules()]
    slopes = [parameter.grad for parameter in model.parameters()]
    states = [model.state_dict(), modes, slopes, optimizer.state_dict()]
    states += [global_state()]
    return [
        leaf.detach().clone() if isinstance(leaf, Tensor) else leaf
        for state in states
        for leaf in leaves(state)
    ]


def assert_equal_bits(one: list[Any], other: list[Any]) -> None:
    assert len(one) == len(other)
    for left, right in zip(one, other, strict=True):
        if isinstance(left, Tensor):
            assert torch.equal(left, right)
        else:
            assert left == right, (left, right)


def dropout_network() -> nn.Module:
    """One that draws random numbers and keeps running statistics."""
    torch.manual_seed(0)
    layers = [nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3)]
    return nn.Sequential(*layers, nn.Linear(8, 3))


def dataset() -> torch.utils.data.TensorDataset:
    draws = torch.Generator().manual_seed(1)
    inputs = torch.randn(48, 5, generator=draws)
    return torch.utils.data.TensorDataset(
        inputs, torch.randint(0, 3, (48,), generator=draws)
    )


def patient(callback: Any) -> Any:
    """Let a callback have time for every measurement."""
    callback.monitor.spent = -1e9
    return callback
