"""Networks that mislead a naive analysis: the group found is right, or refused."""

from __future__ import annotations

import copy

import pytest
import torch
from support.hidden import INPUTS, Hidden, change
from support.models import mlp, small_vit
from torch import Tensor, nn

from flatgauge.errors import SymmetryError
from flatgauge.symmetry import capture, scale_rule, symmetries


@pytest.fixture
def live(monkeypatch):
    """Make every export fail, so that the network is watched while it runs."""

    def refuse(*_):
        raise RuntimeError("not exportable")

    monkeypatch.setattr(capture, "export_graph", refuse)


class InPlaceThroughView(Hidden):
    def __init__(self) -> None:
        super().__init__()
        self.gain = nn.Parameter(torch.randn(4))

    def hidden(self, h: Tensor) -> Tensor:
        view = h.view(-1, 2, 4)
        view.mul_(self.gain)
        return torch.relu(h)


def test_writing_through_a_view_is_followed():
    """8 hidden units, and 4 gains that undo rows of `first` in pairs: 8 + 4."""
    group = symmetries(InPlaceThroughView(), INPUTS)
    assert group.dimension == 12
    assert change(InPlaceThroughView(), INPUTS, group) < 1e-13


@pytest.mark.usefixtures("live")
def test_writing_through_a_view_is_followed_without_export():
    group = symmetries(InPlaceThroughView(), INPUTS)
    assert (group.dimension, group.front_end) == (12, "dispatch")
    assert change(InPlaceThroughView(), INPUTS, group) < 1e-13


class WritesAndDifferentiates(InPlaceThroughView):
    """Torch cannot make a function without writes of what asks for gradients inside."""

    def hidden(self, h: Tensor) -> Tensor:
        leaf = h.detach().requires_grad_()
        (slope,) = torch.autograd.grad(leaf.square().sum(), leaf)
        return super().hidden(slope)


@pytest.mark.usefixtures("live")
def test_writing_through_a_view_is_refused_where_it_cannot_be_followed():
    with pytest.raises(SymmetryError, match="shares"):
        symmetries(WritesAndDifferentiates(), INPUTS)


class SliceAssignment(Hidden):
    def hidden(self, h: Tensor) -> Tensor:
        joined = torch.zeros_like(h)
        joined[:, :4] = torch.relu(h[:, :4])
        joined[:, 4:] = h[:, 4:]
        return joined


def test_slice_assignment_keeps_all_units():
    group = symmetries(SliceAssignment(), INPUTS)
    assert group.dimension == 8
    assert change(SliceAssignment(), INPUTS, group) < 1e-13


@pytest.mark.usefixtures("live")
def test_slice_assignment_keeps_all_units_without_export():
    group = symmetries(SliceAssignment(), INPUTS)
    assert (group.dimension, group.front_end) == (8, "dispatch")
    assert change(SliceAssignment(), INPUTS, group) < 1e-13


class Branch(Hidden):
    def hidden(self, h: Tensor) -> Tensor:
        return torch.relu(h) if h.sum() > 0 else torch.tanh(h)


def test_a_branch_on_data_is_refused():
    """The other branch has no symmetry at all, and only one of them is ever seen."""
    with pytest.raises(SymmetryError, match="branch"):
        symmetries(Branch(), INPUTS)


class Where(Hidden):
    def hidden(self, h: Tensor) -> Tensor:
        return torch.where(h > 1.0, h, torch.zeros_like(h))


def test_a_comparison_with_a_constant_fixes_the_scale():
    assert symmetries(Where(), INPUTS).dimension == 0


class SignTest(Hidden):
    def hidden(self, h: Tensor) -> Tensor:
        return torch.where(h > 0, h, 0.1 * h)


def test_a_comparison_with_zero_does_not():
    group = symmetries(SignTest(), INPUTS)
    assert group.dimension == 8
    assert change(SignTest(), INPUTS, group) < 1e-13


def test_a_zero_initialized_head_does_not_make_the_test_vacuous():
    """With its head at zero the network's outputs are all zero, whatever the group."""
    model, images = small_vit(), torch.randn(2, 3, 32, 32)
    with torch.no_grad():
        assert model(images).abs().max() == 0
    group = symmetries(model, images)
    assert group.dimension == 288
    assert 0 < group.error < 1e-13
    assert group.approximate_error > 0


@pytest.mark.usefixtures("live")
def test_the_test_refuses_a_wrong_group_and_names_the_parameters():
    torch.library.define("flatgauge_test::halfway", "(Tensor x) -> Tensor")

    @torch.library.impl("flatgauge_test::halfway", "CompositeExplicitAutograd")
    def halfway(x: Tensor) -> Tensor:
        return torch.tanh(x)

    @scale_rule("flatgauge_test::halfway")
    def wrong(site, x):
        return x

    class Wrong(Hidden):
        def hidden(self, h: Tensor) -> Tensor:
            return torch.ops.flatgauge_test.halfway(h)

    with pytest.raises(SymmetryError, match=r"'first\.weight'"):
        symmetries(Wrong(), INPUTS)


class Drawn(Hidden):
    def hidden(self, h: Tensor) -> Tensor:
        return torch.relu(h * torch.rand(()))


def test_a_draw_in_the_forward_pass_is_repeated_by_the_test():
    assert symmetries(Drawn(), INPUTS).dimension == 8


class Counting(Hidden):
    calls = 0

    def hidden(self, h: Tensor) -> Tensor:
        Counting.calls += 1
        return torch.relu(h + Counting.calls)


def test_a_function_that_is_another_at_every_call_is_refused():
    with pytest.raises(SymmetryError, match="different outputs"):
        symmetries(Counting(), INPUTS)


def test_nothing_of_the_users_is_touched():
    model = nn.Sequential(
        nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(), nn.Linear(8, 2)
    )
    model.train()
    before = copy.deepcopy(model.state_dict())
    state = torch.get_rng_state()
    fast = torch.backends.mha.get_fastpath_enabled()
    symmetries(model, INPUTS)
    assert all(module.training for module in model.modules())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert torch.equal(state, torch.get_rng_state())
    assert torch.backends.mha.get_fastpath_enabled() == fast
    assert not model[0]._forward_hooks
    assert not model[0]._forward_pre_hooks


class SharedMemory(nn.Module):
    """Two parameters over one memory: scaling both would scale it twice."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.weight = nn.Parameter(self.first.weight.data)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))))


def test_parameters_that_share_memory_are_held_fixed():
    group = symmetries(SharedMemory(), INPUTS)
    assert group.dimension == 0
    pins = {pin.module for pin in group.pinned if "memory" in pin.reason}
    assert pins == {"first.weight", "second.weight"}


def test_unused_parameters_do_not_count():
    model = mlp(4, 8, 3)
    model.register_parameter("left_over", nn.Parameter(torch.ones(5)))
    assert symmetries(model, INPUTS).dimension == 8
