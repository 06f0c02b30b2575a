"""Networks that read numbers to decide what they compute: the group of the path taken."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import flatgauge as fg
from flatgauge.errors import SymmetryError


def objective(model: nn.Module, shift: float = 0.0) -> fg.Objective:
    random = torch.Generator().manual_seed(0)
    drawn = [torch.randn(5, 4, generator=random).double() for _ in range(3)]
    targets = torch.arange(5) % 3
    return fg.Objective(model.double(), [(x + shift, targets) for x in drawn])


class Routed(nn.Module):
    """Each sample goes to one of four experts of 6 hidden units; none to the last."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.router, self.head = nn.Linear(4, 4), nn.Linear(4, 3)
        self.up = nn.Parameter(torch.randn(4, 6, 4))
        self.down = nn.Parameter(torch.randn(4, 4, 6))
        with torch.no_grad():
            self.router.weight.copy_(3.0 * torch.eye(4))
            self.router.bias[-1] = -100.0

    def expert(self, number: int, x: Tensor) -> Tensor:
        return torch.relu(x @ self.up[number].T) @ self.down[number].T

    def down_of(self, number: int) -> Tensor:
        return self.down[number]

    def chosen(self, experts: Tensor) -> list[int]:
        return [int(number) for number in experts.unique()]

    def forward(self, x: Tensor) -> Tensor:
        weight, experts = self.router(x).softmax(-1).max(-1)
        result = torch.zeros_like(x)
        for number in self.chosen(experts):
            rows = (experts == number).nonzero()[:, 0]
            result.index_add_(
                0, rows, self.expert(number, x[rows]) * weight[rows, None]
            )
        return self.head(x + result)


class Listed(Routed):
    def chosen(self, experts: Tensor) -> list[int]:
        return experts.unique().tolist()


class EveryExpert(Routed):
    """The last expert is called without any sample."""

    def chosen(self, experts: Tensor) -> list[int]:
        return [0, 1, 2, 3]


class Modules(EveryExpert):
    def __init__(self) -> None:
        super().__init__()
        del self.up, self.down
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)) for _ in range(4)
        )

    def expert(self, number: int, x: Tensor) -> Tensor:
        return self.experts[number](x)

    def down_of(self, number: int) -> Tensor:
        return self.experts[number][2].weight


@pytest.mark.parametrize("routed", [Routed, Listed, EveryExpert, Modules])
def test_experts_that_were_seen_are_rescaled_and_others_are_not(routed):
    model = routed()
    group = fg.symmetries(objective(model))
    assert group.dimension == 3 * 6
    twin = group.act(model, group.random_element())
    moved = [not torch.equal(model.down_of(i), twin.down_of(i)) for i in range(4)]
    assert moved == [True, True, True, False]


def test_the_path_is_named_and_failed_exports_are_not(capfd):
    group = fg.symmetries(objective(Routed()))
    assert capfd.readouterr().err == ""
    assert group.branches == ("",)
    assert not group.complete
    assert "of the path that the data take" in str(group)


def test_examples_alone_do_not_show_all_paths():
    with pytest.raises(SymmetryError, match=r"branch on data.*symmetries\(objective\)"):
        fg.symmetries(Routed(), torch.randn(5, 4))


def test_an_audit_of_experts_finds_nothing_wrong():
    measure = "fisher-rao-norm[diagonal=True]"
    found = fg.audit(objective(Routed()), measure, elements=1, sharpen_by=None)
    assert not found.violations
    assert {row.kind for row in found.audit_rows} >= {"node-rescale"}


class Equilibrium(nn.Module):
    """z = relu(W z + U x), iterated until it settles."""

    relative = True

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.again = nn.Linear(4, 8), nn.Linear(8, 8, bias=False)
        self.head = nn.Linear(8, 3)
        self.again.weight.data.mul_(0.3)

    def forward(self, x: Tensor) -> Tensor:
        given = self.first(x)
        z = torch.zeros_like(given)
        for _ in range(50):
            last, z = z, torch.relu(self.again(z) + given)
            if (z - last).norm() < 1e-3 * (z.norm() if self.relative else 1.0):
                break
        return self.head(z)


class Absolute(Equilibrium):
    relative = False


def test_what_decides_when_a_loop_ends_is_preserved():
    """The iterate may be rescaled as a whole, unless it is compared with a constant."""
    assert fg.symmetries(objective(Equilibrium())).dimension == 1
    assert fg.symmetries(objective(Absolute())).dimension == 0


class Turning(nn.Module):
    """A ReLU network for inputs of a positive sum, else one of tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.body(x)
        return self.head(h.relu() if x.sum() > 0 else h.tanh())


def test_symmetries_must_hold_on_the_paths_of_all_data():
    assert fg.symmetries(objective(Turning(), shift=5.0)).dimension == 6
    both = objective(Turning(), shift=-0.35)
    sums = [float(batch.inputs.sum()) for batch in both.batches()]
    assert min(sums) < 0 < max(sums)
    assert fg.symmetries(both).dimension == 0


class Steps(nn.Module):
    """An integrator that writes its stages into one block of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.field = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        stages = torch.empty(2, *x.shape, dtype=x.dtype)
        for _ in range(3):
            stages[0] = self.field(x)
            stages[1].copy_(self.field(x + 0.05 * stages[0]))
            x = x + 0.1 * stages.mean(0)
            if float(x.detach().abs().max()) > 1e3:
                break
        return self.head(x)


def test_writes_to_shared_memory_are_followed_where_export_fails():
    group = fg.symmetries(objective(Steps()))
    assert (group.dimension, group.front_end) == (8, "dispatch")
