from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from support.unsound import Detached
from torch import Tensor, nn

from flatgauge.differences import examine, moved, scales_of
from flatgauge.quotients import Quotients, Verdict
from flatgauge.vectors import Params

POINT = {
    "w": torch.tensor([0.3, -1.2, 0.7], dtype=torch.float64),
    "b": torch.tensor([250.0, -10.0], dtype=torch.float64),
}


def verdict(function) -> Verdict:
    def sized(point: Params) -> tuple[Tensor, float]:
        value = function(**point)
        return value, abs(float(value.detach()))

    return examine(sized, moved(POINT)).verdict


def test_every_entry_moves_in_units_of_its_tensor():
    point = {**POINT, "zero": torch.zeros(4, dtype=torch.float64)}
    scales, other = scales_of(point), moved(point)
    assert scales["b"] == pytest.approx(float(point["b"].norm()) / 2**0.5)
    assert scales["zero"] > 0
    for name, tensor in point.items():
        change = (other[name] - tensor).abs()
        assert bool((change > 0).all())
        assert float(change.max()) < (0.05 if bool(tensor.any()) else 5) * scales[name]


@pytest.mark.parametrize(
    "function",
    [
        lambda w, b: (w.sin().sum() * (b / 99).tanh().sum()).exp(),
        lambda w, b: w.sum() + b.sum(),
        lambda w, b: w.abs().sum() * b.relu().sum(),
        lambda w, b: (w.float().sin().double() * b[0]).sum(),
        lambda w, b: F.hardswish(3 * w).sum() + b.max(),
    ],
)
def test_derivatives_that_are_right(function):
    assert verdict(function) is Verdict.AGREES


def test_without_slopes_nothing_is_seen():
    assert verdict(lambda w, b: 0 * w.sum() + 3) is Verdict.UNDECIDED


@pytest.mark.parametrize(
    "function",
    [
        lambda w, b: (w * w.detach()).sum() + b.sum(),
        lambda w, b: Detached.apply(w).sum() + (b**2).sum() * 1e-3,
        lambda w, b: (w + (w.round() - w).detach()).exp().sum() + b.sum(),
        lambda w, b: w.exp().sum() + (b.detach() * b).sum() * 1e-6,
    ],
)
def test_derivatives_that_are_wrong(function):
    assert verdict(function) is Verdict.DIFFERS


def test_a_gradient_that_is_no_gradient_has_an_asymmetric_hessian():
    """Its own kinks hide what differences could say; its products are not symmetric."""

    class Turned(torch.autograd.Function):
        @staticmethod
        def forward(ctx, w):
            ctx.save_for_backward(w)
            return (w**2).sum() / 2

        @staticmethod
        def backward(ctx, slope):
            (w,) = ctx.saved_tensors
            turn = torch.tensor([[0, 1.0, 0], [-1.0, 0, 0], [0, 0, 0]], dtype=w.dtype)
            return slope * (w + turn @ w)

    assert verdict(lambda w, b: Turned.apply(w) + b.sum() * 0) is Verdict.DIFFERS


def test_what_rounding_hides_is_left_undecided():
    def hidden(w, b):
        return (w.sum() + 1e12).float().double() + 0 * b.sum()

    assert verdict(hidden) is Verdict.UNDECIDED


def test_numbers_that_are_not_finite_are_left_undecided():
    assert verdict(lambda w, b: (w - 9).sqrt().sum() + b.sum()) is Verdict.UNDECIDED


def test_no_second_derivative_leaves_the_first_to_be_checked():
    class Once(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.autograd.function.once_differentiable
        def backward(ctx, slope):
            return slope * 2

    assert verdict(lambda w, b: Once.apply(w.sin()).sum() + b.sum()) is Verdict.AGREES

    class Numbers(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, slope):
            return torch.from_numpy(2 * slope.numpy())

    assert verdict(lambda w, b: Numbers.apply(w.sin()).sum()) is Verdict.AGREES
    wrong = nn.Sequential(nn.Hardsigmoid()).double()
    assert verdict(lambda w, b: (wrong(w) * w.detach()).sum()) is Verdict.DIFFERS


def test_steps_that_are_too_large_are_no_evidence():
    """Beyond the width of a narrow bend, quotients agree with one another on nothing."""

    def function(point):
        x = point["x"]
        narrow = (x - point["x"].detach().mean()) * 0 + (x * 3e5 - 3e5).tanh() * 1e-5
        return (narrow + x).sum(), 1.0

    point = {"x": torch.ones(3, dtype=torch.float64)}
    assert examine(function, point).verdict is not Verdict.DIFFERS


def test_changes_that_are_rounded_alike_are_no_evidence():
    """Of a loss that is nearly 0, changes are multiples of the rounding of its terms."""
    right = 7.105936e-07
    check = Quotients(torch.tensor([right]).double(), unit=3.6e-6, plain=True)
    check.near, check.rounding, check.fine = 1e-5, 1.2e-15, True
    for step in (1e-8, 1e-7, 1e-6):
        check.add(step, torch.tensor([7.105427e-07]).double())
    assert check.verdict() is Verdict.DIFFERS
    for step, off in ((1e-5, 6.5e-12), (1e-4, 2.3e-12), (1e-3, 2.1e-10)):
        check.add(step, torch.tensor([right + off]).double())
    assert check.verdict() is Verdict.AGREES


def test_what_one_direction_hardly_sees_another_does():
    """Along the first, the wrong part is about as large as the rounding of the coarse one."""

    def function(point: Params) -> tuple[Tensor, float]:
        w, b = point["w"], point["b"]
        value = (100 * w.sin()).float().double().sum() + 30 * (b * b.detach()).sum()
        return value, abs(float(value.detach()))

    point = {"w": torch.tensor([0.3, 0.8]).double(), "b": torch.tensor([0.4]).double()}
    one = torch.ones(1).double()
    v = {"w": torch.ones(2).double(), "b": 3e-4 * one}
    u = {"w": torch.ones(2).double(), "b": one}
    wrong = examine(function, point, along=(v, u))
    assert wrong.verdict is Verdict.DIFFERS
    assert "derivative of the loss" in wrong.words
