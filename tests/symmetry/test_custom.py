"""Users' own functions and operators: read through, pinned and named, or taught."""

from __future__ import annotations

import warnings

import pytest
import torch
from support.hidden import INPUTS, Hidden, change
from support.models import mlp
from torch import Tensor

from flatgauge.errors import SymmetryError
from flatgauge.symmetry import SymmetryWarning, scale_rule, symmetries


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.abs()

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * gradient * x.abs()


class CustomFunction(Hidden):
    def hidden(self, h: Tensor) -> Tensor:
        return Cube.apply(h)


def test_a_custom_autograd_function_is_read_through():
    """x |x| has degree 2: 8 units, whose outgoing weights move by the square."""
    group = symmetries(CustomFunction(), INPUTS)
    assert group.dimension == 8
    assert change(CustomFunction(), INPUTS, group) < 1e-13


class NumpyFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        return torch.from_numpy(x.detach().numpy() ** 2 + 1)


class CustomNumpyFunction(Hidden):
    def __init__(self) -> None:
        super().__init__()
        self.last = mlp(3, 6, 2)

    def hidden(self, h: Tensor) -> Tensor:
        return NumpyFunction.apply(h)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(super().forward(x))


def test_a_function_outside_torch_is_pinned_and_named():
    """The 8 units that go through numpy are fixed; behind them 3 + 6 stay free.

    (3 between the two linear maps that follow each other, 6 hidden units of the last.)
    """
    model = CustomNumpyFunction()
    with pytest.warns(SymmetryWarning, match="numpy"):
        group = symmetries(model, INPUTS)
    assert group.front_end == "dispatch"
    assert group.dimension == 3 + 6
    assert [name for name, _ in group.unsupported] == ["python::numpy"]
    assert change(model, INPUTS, group) < 1e-13


@torch.library.custom_op("flatgauge_test::squared_relu", mutates_args=())
def squared_relu(x: Tensor) -> Tensor:
    return torch.relu(x) ** 2


@squared_relu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


class CustomOperator(Hidden):
    def __init__(self) -> None:
        super().__init__()
        self.last = mlp(3, 6, 2)

    def hidden(self, h: Tensor) -> Tensor:
        return squared_relu(h)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(super().forward(x))


def test_an_unknown_operator_is_pinned_and_named_then_taught():
    model = CustomOperator()
    with pytest.warns(SymmetryWarning, match="flatgauge_test::squared_relu"):
        group = symmetries(model, INPUTS)
    assert group.dimension == 3 + 6
    assert group.unsupported == {("flatgauge_test::squared_relu", ""): 1}
    assert any(p.operator == "flatgauge_test::squared_relu" for p in group.pinned)
    with pytest.raises(SymmetryError, match="squared_relu"):
        symmetries(model, INPUTS, strict=True)

    @scale_rule("flatgauge_test::squared_relu")
    def rule(site, x):
        return x * 2.0

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group = symmetries(model, INPUTS, strict=True)
    assert group.dimension == 8 + 3 + 6
    assert change(model, INPUTS, group) < 1e-13
