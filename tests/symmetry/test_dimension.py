"""The second opinion: how many rescalings there are by linear algebra alone."""

from __future__ import annotations

import pytest
import torch
from support.models import Attend, ChannelStream, images, mlp
from support.users import net
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.cli import main
from flatgauge.errors import OptionError
from flatgauge.symmetry import SymmetryWarning, symmetries
from flatgauge.symmetry.dimension import examined

__all__ = ["net"]


@torch.library.custom_op("flatgauge_tests::unknown_relu", mutates_args=())
def unknown_relu(x: Tensor) -> Tensor:
    return x.relu()


@unknown_relu.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def _backward(ctx, gradient: Tensor) -> Tensor:
    return gradient * (ctx.saved_tensors[0] > 0)


def _setup(ctx, inputs, output) -> None:
    ctx.save_for_backward(inputs[0])


unknown_relu.register_autograd(_backward, setup_context=_setup)


class Unknown(nn.Module):
    """Five units behind an operator that no rule is known of, then four behind a ReLU."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.rest = nn.Linear(3, 5), mlp(5, 4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.rest(unknown_relu(self.first(x)))


class Faint(nn.Module):
    """A branch so faint that nobody can tell it from rounding."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.strong, self.faint, self.size = nn.Linear(3, 2), nn.Linear(3, 2), size

    def forward(self, x: Tensor) -> Tensor:
        return self.strong(x) + self.size * self.faint(x).tanh()


CASES = {
    # 6 + 5 units; the channels of the stream; 4 + 4 coordinates, with an idle key bias.
    "mlp": (lambda: mlp(3, 6, 5, 2), images(4, 3), 11, 0),
    "batch norm": (ChannelStream, images(3, 2, 4, 4), 3, 0),
    "attention": (lambda: Attend(bias=True), images(2, 3, 4), 8, 4),
    "no rescaling": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)),
        images(4, 3), 0, 0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_known_counts(name):
    build, inputs, count, idle = CASES[name]
    torch.manual_seed(0)
    group = symmetries(build(), inputs, verify="dimension")
    second = group.numerical
    assert second is not None
    assert (second.counted, second.found, second.idle) == (count, count, idle)
    assert second.missed == 0
    assert second.missing == ()
    assert second.below < 1e-13 < 1e-5 < second.above
    assert "nothing was missed" in str(group)


@pytest.mark.filterwarnings("ignore::flatgauge.symmetry.SymmetryWarning")
def test_what_was_missed_is_counted_and_named():
    torch.manual_seed(0)
    group = symmetries(Unknown(), images(6, 3), verify="dimension")
    second = group.numerical
    assert second is not None
    assert (second.found, second.counted, second.missed) == (4, 9, 5)
    assert second.missing == ("first.weight", "first.bias", "rest.0.weight")
    assert "5 missed, which move first.weight" in str(group)


def test_an_operator_without_a_rule_warns():
    with pytest.warns(SymmetryWarning, match="unknown_relu"):
        symmetries(Unknown(), images(6, 3))


def test_without_a_gap_nothing_is_decided():
    torch.manual_seed(0)
    clear = symmetries(Faint(0.1), images(6, 3), verify="dimension").numerical
    assert clear is not None
    assert clear.counted == 0
    faint = symmetries(Faint(1e-14), images(6, 3), verify="dimension").numerical
    assert faint is not None
    assert faint.counted is None
    assert faint.missed is None
    assert "undecided, since there is no gap" in str(faint)


def test_computed_in_float64_whatever_the_network_casts_to():
    class Cast(nn.Sequential):
        def forward(self, input: Tensor) -> Tensor:
            return self[2](self[1](self[0](input).float()).to(input.dtype))

    torch.manual_seed(0)
    network = Cast(*mlp(3, 6, 2))
    second = symmetries(network, images(6, 3), verify="dimension").numerical
    assert second is not None
    assert (second.counted, second.missed) == (6, 0)
    assert second.below < 1e-13


def test_the_smallest_tensors_of_a_large_network():
    large = {"a": torch.zeros(6000), "b": torch.zeros(900), "c": torch.zeros(1000)}
    assert list(examined(large)) == ["b", "c"]
    assert list(examined({"a": torch.zeros(4000)})) == ["a"]


def test_on_the_data_of_an_objective():
    torch.manual_seed(0)
    data = [(images(8, 3), torch.arange(8) % 2)]
    objective = fg.Objective(mlp(3, 4, 2), data)
    second = fg.symmetries(objective, verify="dimension").numerical
    assert second is not None
    assert (second.counted, second.missed) == (4, 0)
    assert fg.symmetries(objective).numerical is None


def test_paths_that_numbers_decide_on_leave_it_undecided():
    class Settles(nn.Module):
        """Goes on until nothing moves: how often depends on the size of the units."""

        def __init__(self) -> None:
            super().__init__()
            self.own, self.given = nn.Linear(3, 3, bias=False), nn.Linear(3, 3)
            self.head = nn.Linear(3, 2)

        def forward(self, x: Tensor) -> Tensor:
            state, step = torch.zeros_like(x), torch.ones_like(x)
            while step.norm() > 1e-3:
                before = state
                state = (0.1 * self.own(state) + self.given(x)).relu()
                step = state - before
            return self.head(state)

    torch.manual_seed(0)
    objective = fg.Objective(Settles(), [(images(8, 3), torch.arange(8) % 2)])
    group = fg.symmetries(objective, verify="dimension")
    assert group.branches
    assert group.numerical is not None
    assert group.numerical.counted is None
    assert "3 more keep the outputs only while the path stays" in str(group.numerical)


def test_no_other_second_opinion():
    with pytest.raises(OptionError, match="'dimension'"):
        symmetries(mlp(3, 4, 2), images(4, 3), verify="length")


def test_the_command_says_it(net, capsys):
    command = ["symmetries", f"{net}:model", f"{net}:batches", "--verify", "dimension"]
    assert main([*command, "--measure", "hessian-trace"]) == 0
    assert "nothing was missed" in capsys.readouterr().out


@pytest.mark.parametrize("seed", [0, 2])
def test_samples_that_are_alike_say_no_more_than_one(seed):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(5, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    ones = torch.ones(6, 5, dtype=torch.float64)
    counted = symmetries(model, ones, verify="dimension").numerical
    assert counted is not None
    assert (counted.counted, counted.missed) == (4, 0)
