"""Hidden units of any network: found by use, permuted, turned and mixed."""

from __future__ import annotations

import pytest
import torch
from support.models import UNet, images, mlp, resnet
from torch import Tensor, nn

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.capture import read
from flatgauge.symmetry.graph import Example
from flatgauge.symmetry.hidden import hidden_units
from flatgauge.symmetry.maps.head_matrices import random_gl
from flatgauge.symmetry.maps.hidden import (
    HiddenUnits,
    flip_signs,
    mix_hidden,
    permute_hidden,
)


class LowRank(nn.Module):
    """LoRA: a frozen map plus a product of two factors."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.drop = nn.Linear(5, 4), nn.Dropout(0.1)
        self.down = nn.Linear(5, 2, bias=False)
        self.up = nn.Linear(2, 4, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + 0.5 * self.up(self.down(self.drop(x)))


class Gated(nn.Module):
    """silu(W₁ x) ⊙ W₂ x, by two matrices or by one that is cut in two."""

    def __init__(self, fused: bool) -> None:
        super().__init__()
        self.fused = fused
        self.inside = nn.Linear(3, 8 if fused else 4)
        self.gate = None if fused else nn.Linear(3, 4)
        self.out = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        if self.gate is None:
            gate, value = self.inside(x).chunk(2, -1)
        else:
            gate, value = self.gate(x), self.inside(x)
        return self.out(nn.functional.silu(gate) * value)


class TurnedWeight(nn.Module):
    """GPT-2's linear map, whose weight is [inputs, outputs], and its GELU."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.bias = (nn.Parameter(torch.randn(n)) for n in ((3, 4), 4))
        self.out = nn.Parameter(torch.randn(2, 4))

    def forward(self, x: Tensor) -> Tensor:
        h = torch.addmm(self.bias, x, self.weight)
        h = 0.5 * h * (1.0 + torch.tanh(0.8 * (h + 0.04 * h.pow(3.0))))
        return h @ self.out.t()


class Residual(nn.Module):
    """What is added to its own input has no places of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.second(x + self.first(x).tanh())


def prepared(model: nn.Module, *inputs: Tensor):
    model = model.double().eval()
    for name, buffer in model.named_buffers():
        if name.endswith(("mean", "var")):
            buffer.copy_(torch.rand(buffer.shape) + 0.5)
    graph = read(model, Example(inputs, {}, lambda result: result)).graph
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return hidden_units(graph), {n: t.detach() for n, t in tensors.items()}


def change(model: nn.Module, moved: dict[str, Tensor], x: Tensor) -> float:
    with torch.no_grad():
        before, after = model(x), torch.func.functional_call(model, moved, (x,))
    return float((after - before).norm() / before.norm())


def tanh_network() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


# Network, inputs, the number of units of each set.
CASES = {
    "mlp": (lambda: mlp(3, 6, 5, 2), images(4, 3), [6, 5]),
    "tanh": (tanh_network, images(4, 3), [4]),
    # The first layer's channels are read twice, once beside others.
    "unet": (UNet, images(2, 3, 16, 16), [8, 8]),
    # Inside each block; running statistics move along. The streams are not found.
    "resnet": (lambda: resnet((1, 1), False), images(2, 3, 32, 32), [64, 128]),
    "gated": (lambda: Gated(False), images(5, 3), [4]),
    "gated, fused": (lambda: Gated(True), images(5, 3), [4]),
    "turned": (TurnedWeight, images(5, 3), [4]),
    "low rank": (LowRank, images(6, 5), [2]),
    "residual": (Residual, images(6, 3), []),
}


@pytest.mark.parametrize("name", CASES)
def test_permutations_keep_the_function(name):
    build, inputs, counts = CASES[name]
    torch.manual_seed(0)
    model, x = build(), inputs.double()
    found, tensors = prepared(model, x)
    assert [units.count for units in found] == counts
    for units in found:
        order = torch.randperm(units.count).roll(1)
        moved = permute_hidden(tensors, units, order)
        assert change(model, moved, x) < 1e-13
        assert any(not torch.equal(moved[n], tensors[n]) for n in units.names)


def only(model: nn.Module, x: Tensor) -> tuple[HiddenUnits, dict[str, Tensor]]:
    (units,), tensors = prepared(model, x)
    return units, tensors


def test_signs_turn_through_odd_functions_only():
    x, signs = images(4, 3).double(), torch.tensor([1.0, -1.0, -1.0, 1.0])
    model = tanh_network()
    units, tensors = only(model, x)
    assert units.odd
    assert not units.untouched
    assert change(model, flip_signs(tensors, units, signs), x) < 1e-14
    bent = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    units, tensors = only(bent, x)
    with pytest.raises(SymmetryError, match="not odd"):
        flip_signs(tensors, units, signs)
    shifted = nn.Sequential(nn.Linear(3, 4), _Shift(), nn.Linear(4, 2))
    assert not only(shifted, x)[0].odd


class _Shift(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return (x + 1.0).tanh()


def test_any_matrix_comes_between_the_factors_of_a_product():
    x, model = images(6, 5).double(), LowRank()
    units, tensors = only(model, x)
    assert units.untouched
    moved = mix_hidden(tensors, units, random_gl(1, 2, seed=0)[0])
    assert change(model, moved, x) < 1e-13
    assert torch.equal(moved["base.weight"], tensors["base.weight"])
    with pytest.raises(SymmetryError, match="singular"):
        mix_hidden(tensors, units, torch.ones(2, 2).double())
    curved = tanh_network()
    units, tensors = only(curved, images(4, 3).double())
    with pytest.raises(SymmetryError, match="something happens"):
        mix_hidden(tensors, units, random_gl(1, 4, seed=0)[0])


def test_what_is_no_permutation_and_no_sign():
    units, tensors = only(tanh_network(), images(4, 3).double())
    with pytest.raises(SymmetryError, match="not a permutation"):
        permute_hidden(tensors, units, torch.tensor([0, 0, 1, 2]))
    with pytest.raises(SymmetryError, match="signs are"):
        flip_signs(tensors, units, torch.tensor([1.0, 2.0, 1.0, 1.0]))


def test_tied_weights_are_left_alone():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(self.layer(x).relu())

    assert prepared(Tied(), images(4, 3).double())[0] == []
