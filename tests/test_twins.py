"""No kind of symmetry is said of a network that does not have it, on any data."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.twins import other_families

Treat = Callable[[Tensor], Tensor]
BY_USE = {"permutation", "sign-flip", "factor-gl"}


class Treated(nn.Module):
    """Six hidden units, and what happens to them."""

    def __init__(self, treat: Treat) -> None:
        super().__init__()
        self.first, self.last, self.treat = nn.Linear(5, 6), nn.Linear(6, 3), treat

    def forward(self, inputs: Tensor) -> Tensor:
        return self.last(self.treat(self.first(inputs)))


def kinds(model: nn.Module, inputs: Tensor, batch_size: int | None = None) -> set[str]:
    if inputs.is_floating_point():
        inputs = inputs.double()
    data = inputs, torch.arange(len(inputs)) % 3
    problem = fg.Objective(model.double(), data, batch_size=batch_size)
    return {str(family.kind) for family in other_families(problem)}


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    "treat",
    [
        lambda h: (h.abs() + 0.1) ** torch.arange(1.0, 7.0).to(h),
        lambda h: 2.0**h,
        lambda h: F.max_pool1d(h, 3, 1, 1),
        lambda h: F.avg_pool1d(h, 3, 1, 1),
        lambda h: torch.cat([h[:, :3].tanh(), h[:, 3:].relu()], 1),
    ],
    ids=["exponents", "of units", "pooled", "averaged", "halves"],
)
def test_units_that_are_not_treated_alike(treat: Treat):
    torch.manual_seed(0)
    assert not kinds(Treated(treat), drawn(6, 5)) & BY_USE


def test_one_unit_that_gates_the_others_of_a_single_sample():
    torch.manual_seed(0)
    model = Treated(lambda h: h * h[:, :1])
    assert not kinds(model, drawn(4, 5), batch_size=1) & BY_USE


def test_steps_can_be_permuted_and_no_more():
    torch.manual_seed(0)
    model = Treated(lambda h: h + torch.div(h, 0.5, rounding_mode="floor"))
    assert kinds(model, drawn(6, 5)) & BY_USE == {"permutation"}


class OtherPath(nn.Module):
    """Two experts, of which the first sample decides."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(5, 6)
        self.experts = nn.ModuleList([nn.Linear(6, 3), nn.Linear(6, 3)])

    def forward(self, inputs: Tensor) -> Tensor:
        expert = self.experts[int(inputs[0].sum() > 0)]
        return expert(self.first(inputs).tanh())


def test_a_permutation_holds_on_all_batches():
    torch.manual_seed(0)
    assert not kinds(OtherPath(), drawn(12, 5), batch_size=1) & BY_USE


def test_a_twin_is_another_one_even_of_two_units():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 2), nn.Tanh(), nn.Linear(2, 3)).double()
    data = drawn(6, 5).double(), torch.arange(6) % 3
    problem = fg.Objective(model, data)
    for family in other_families(problem):
        if family.kind in BY_USE:
            for seed in range(8):
                twin = family.move(seed, 0.5).parameters
                assert not torch.equal(twin["0.weight"], problem.parameters["0.weight"])


class Words(nn.Module):
    """A number for each word, of which some do not occur."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.last = nn.Embedding(9, 5), nn.Linear(5, 3)
        self.each = nn.Parameter(torch.randn(9))

    def forward(self, words: Tensor) -> Tensor:
        return self.last(self.table(words).tanh()) + self.each[words].square()[:, None]


class Positions(nn.Module):
    """A number for each position, more than there are."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(5, 6), nn.Linear(6, 3)
        self.each = nn.Parameter(torch.randn(8))

    def forward(self, inputs: Tensor) -> Tensor:
        hidden = self.first(inputs).tanh() * self.each[: inputs.shape[1], None]
        return self.last(hidden.sum(1))


class Gains(nn.Module):
    """A gain for each input, one of which is zero in all samples."""

    def __init__(self) -> None:
        super().__init__()
        self.gains, self.net = nn.Parameter(torch.randn(5)), Treated(torch.relu)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.net(inputs * self.gains)


class Turned(nn.Module):
    """An attention whose queries and keys are turned by their positions."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.ModuleList([nn.Linear(5, 4) for _ in range(3)])
        self.out, self.last = nn.Linear(4, 4), nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        q, k, v = (one(inputs)[:, None] for one in self.qkv)
        angles = torch.arange(inputs.shape[1]).to(q)[:, None] * q.new_tensor([1.0, 0.1])
        angles = torch.cat([angles, angles], 1)

        def turn(x: Tensor) -> Tensor:
            half = torch.cat([-x[..., 2:], x[..., :2]], -1)
            return x * angles.cos() + half * angles.sin()

        found = F.scaled_dot_product_attention(turn(q), turn(k), v)
        return self.last(self.out(found[:, 0])).mean(1)


def centred() -> Tensor:
    inputs = drawn(6, 5).double()
    return inputs - inputs.mean(1, keepdim=True)


@pytest.mark.parametrize(
    ("build", "inputs"),
    [
        (Words, torch.arange(6) % 4),
        (Positions, drawn(6, 4, 5)),
        (Gains, drawn(6, 5) * torch.tensor([0.0, 1.0, 1.0, 1.0, 1.0])),
        (lambda: Treated(torch.relu), centred()),
        (Turned, drawn(6, 1, 5)),
    ],
    ids=["words", "positions", "zero input", "centred inputs", "one position"],
)
def test_what_has_no_effect_on_these_data_alone_is_no_shift(build, inputs):
    torch.manual_seed(0)
    assert "absorbed-shift" not in kinds(build(), inputs)


def test_one_position_does_not_show_what_turns_queries_and_keys():
    torch.manual_seed(0)
    model = Turned().double()
    problem = fg.Objective(model, (drawn(6, 1, 5).double(), torch.arange(6) % 3))
    (heads,) = (one for one in other_families(problem) if one.kind == "attention-gl")
    longer = drawn(4, 7, 5).double()
    twin = heads.move(0, 0.5).model()
    assert torch.allclose(twin(longer), model(longer), rtol=1e-10, atol=1e-12)
