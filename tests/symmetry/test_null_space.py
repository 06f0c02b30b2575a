"""Discovery against linear algebra: the stacked Jacobian of tiny networks."""

from __future__ import annotations

import pytest
import torch
from support.models import Attend, ChannelStream, images, mlp
from support.numerical_dimension import numerical_dimension
from torch import Tensor, nn

from flatgauge.symmetry import symmetries
from flatgauge.symmetry.verify import perturbed


class Gated(nn.Module):
    """RMSNorm and a gate: w₂ (silu(w₁ x) ⊙ w₃ x)."""

    def __init__(self, gate: bool) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(4, eps=1e-2)
        self.first = nn.Linear(4, 5, bias=False)
        self.second = nn.Linear(4, 5, bias=False)
        self.out = nn.Linear(5, 3, bias=False)
        self.gate = gate

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm(x)
        left = self.first(x)
        left = nn.functional.silu(left) if self.gate else left
        return self.out(left * self.second(x))


class Tied(nn.Module):
    """A matrix used twice, once transposed."""

    def __init__(self, reuse: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 4))
        self.out = nn.Linear(4, 2)
        self.reuse = reuse

    def forward(self, x: Tensor) -> Tensor:
        second = self.weight if self.reuse else self.weight.T
        return self.out(torch.relu(torch.relu(x @ self.weight) @ second))


class Einsum(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(3, 4, 5))
        self.second = nn.Parameter(torch.randn(3, 5, 2))

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(torch.einsum("bi,eih->beh", x, self.first))
        return torch.einsum("beh,eho->bo", hidden, self.second)


class Elementwise(nn.Module):
    """A table of gains for every position and feature, undone by another one."""

    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.randn(3, 4))
        self.other = nn.Parameter(torch.randn(3, 4))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x * self.gain) * self.other


def conv_net(groups: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 2, groups=groups),
        nn.LeakyReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4, 2),
    )  # fmt: skip


CASES = {
    # 6 + 5 units.
    "mlp": (lambda: mlp(3, 6, 5, 2), images(4, 3), 11, 0),
    "mlp without bias": (lambda: mlp(3, 6, 5, 2, bias=False), images(4, 3), 11, 0),
    # 4 + 4 channels, also if each output channel sees only its group's inputs.
    "convolutions": (lambda: conv_net(1), images(3, 2, 5, 5), 8, 0),
    "grouped": (lambda: conv_net(2), images(3, 2, 5, 5), 8, 0),
    "depthwise": (lambda: conv_net(4), images(3, 2, 5, 5), 8, 0),
    # The stream's 3 channels: buffers are fixed, so nothing moves in front of a norm.
    "batch norm": (ChannelStream, images(3, 2, 4, 4), 3, 0),
    # 4 query-key and 4 value-output coordinates; the key bias (4) changes nothing.
    "attention": (lambda: Attend(bias=True), images(2, 3, 4), 8, 4),
    "attention without bias": (lambda: Attend(bias=False), images(2, 3, 4), 8, 0),
    # 4 gains, 5 units behind the gate; with two linear branches 5 more.
    "gate": (lambda: Gated(gate=True), images(3, 4), 9, 0),
    "bilinear": (lambda: Gated(gate=False), images(3, 4), 14, 0),
    # The same matrix twice: its columns must share one scale, which the head undoes.
    "reused layer": (lambda: Tied(reuse=True), images(4, 4), 1, 0),
    "transposed layer": (lambda: Tied(reuse=False), images(4, 4), 1, 0),
    # Three experts with five units each.
    "einsum": (Einsum, images(4, 4), 15, 0),
    # Every entry has a scale of its own.
    "elementwise": (Elementwise, images(4, 3, 4), 12, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_count_equals_the_numerical_null_space(name):
    build, inputs, expected, dead = CASES[name]
    torch.manual_seed(0)
    model = perturbed(build().double().eval())
    group = symmetries(model, inputs.double(), strict=True, batchnorm="parameters")
    numerical, without_effect = numerical_dimension(model, (inputs,))
    assert group.dimension == expected
    assert without_effect == dead
    assert numerical == expected + dead


def test_the_null_space_sees_a_symmetry_that_is_not_there():
    """Against a check that could not fail: tanh leaves no rescaling."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    assert numerical_dimension(model, (images(4, 3),)) == (0, 0)
    assert symmetries(model, images(4, 3)).dimension == 0
