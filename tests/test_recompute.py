"""Blocks that are computed again have the same derivatives, and keep less."""

from __future__ import annotations

from weakref import WeakSet

import pytest
import torch
from support.cases import Residual, assert_close
from support.shared_work import problem
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import flatgauge as fg
from flatgauge.curvature.routes import ROUTES
from flatgauge.errors import FlatgaugeError, ModelError, OptionError


def convolutions() -> nn.Module:
    return nn.Sequential(
        nn.Sequential(nn.Conv2d(1, 3, 3), nn.ReLU()),
        nn.Sequential(nn.Conv2d(3, 3, 3), nn.GELU(), nn.LayerNorm(4)),
        nn.Flatten(),
        nn.Linear(48, 4),
    )


class Listed(nn.Module):
    """Blocks in a list, one of which gets and gives several things; tied weights."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Gated(4), Gated(4), Gated(4)])
        self.blocks[2].linear.weight = self.blocks[0].linear.weight
        self.norm = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        gate = torch.ones_like(x)
        for block in self.blocks:
            x, gate = block(x, gate=gate, twice=True)
        return self.head(self.norm(x))


class Gated(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x, *, gate, twice):
        y = torch.tanh(self.linear(x) * gate)
        return (x + y * y if twice else y), gate * y.sigmoid()


X, IMAGES = torch.randn(6, 4).double(), torch.randn(5, 1, 8, 8).double()
Y = torch.tensor([0, 1, 2, 0, 1, 2])
CASES = {
    "convolutions": (convolutions, (IMAGES, Y[:5]), "eval"),
    "listed": (Listed, (X, Y), "eval"),
    "statistics of the batch": (Listed, (X, Y), "train"),
}


def pair_of(name: str) -> tuple[fg.Objective, fg.Objective]:
    build, data, mode = CASES[name]
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = build().double()
    plain = fg.Objective(model, data, mode=mode)
    return plain, fg.Objective(model, data, mode=mode, checkpoint=True)


@pytest.mark.parametrize("name", CASES)
def test_derivatives_are_the_same(name):
    plain, again = pair_of(name)
    assert again.value() == pytest.approx(plain.value(), rel=1e-12)
    assert_close(again.gradient(), plain.gradient())
    hessian = fg.Hessian(again)
    assert_close(hessian.to_dense(), fg.Hessian(plain).to_dense())
    # Prepared batches serve again.
    assert_close(hessian.to_dense(), fg.Hessian(plain).to_dense())


def test_a_language_model():
    model, data, _ = problem("gpt2")
    plain, again = (fg.Objective(model, data, checkpoint=on) for on in (False, True))
    slope = plain.gradient()
    assert_close(again.gradient(), slope)
    assert_close(fg.Hessian(again) @ slope, fg.Hessian(plain) @ slope)
    assert model.config.use_cache


def test_the_default_set_is_the_same():
    plain, again = (fg.measure(one) for one in pair_of("listed"))
    for request in plain:
        if plain[request].value is None:
            assert again[request].value is None
        else:
            assert again[request].value == pytest.approx(plain[request].value, rel=1e-8)


class Kept:
    """A tensor that a graph holds on to."""

    def __init__(self, tensor):
        # Not the tensor itself, which leads back to the graph.
        self.tensor = tensor.data


def test_activations_are_not_kept():
    width, depth, rows = 8, 12, 64
    layers = [
        nn.Sequential(nn.Linear(width, width), *(nn.Tanh() for _ in range(8)))
        for _ in range(depth)
    ]
    model = nn.Sequential(*layers, nn.Linear(width, 3)).double()
    data = (torch.randn(rows, width).double(), torch.randint(0, 3, (rows,)))
    kept = []
    for on in (False, True):
        objective = fg.Objective(model, data, checkpoint=on)
        batch = objective.first_batch()
        alive: WeakSet[Kept] = WeakSet()

        def pack(tensor, alive=alive):
            one = Kept(tensor)
            alive.add(one)
            return one

        hooks = saved_tensors_hooks(pack, lambda one: one.tensor)
        with objective.isolated(), hooks:
            product = ROUTES["double-backward"]().prepare(objective, batch)
        blocks = {one.tensor.data_ptr(): one.tensor.nbytes for one in alive}
        kept.append(sum(blocks.values()))
        del product
    assert kept[1] < kept[0] / 3


def test_the_model_is_given_back_as_it_was():
    again = pair_of("listed")[1]
    again.gradient()
    found = again.model()
    assert all("forward" not in vars(module) for module in found.modules())
    assert torch.isfinite(found(X)).all()


def test_hooks_run_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 3)).double()
    model[0].register_forward_hook(lambda module, given, output: 2 * output)
    plain, again = (fg.Objective(model, (X, Y), checkpoint=on) for on in (False, True))
    assert again.value() == plain.value()
    assert_close(again.gradient(), plain.gradient())
    assert_close(fg.Hessian(again).to_dense(), fg.Hessian(plain).to_dense())


class Captured(nn.Module):
    """A block that reads a weight of its parent."""

    def __init__(self, parent: nn.Module):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.parents = [parent]

    def forward(self, x):
        return self.linear(x) * self.parents[0].scale


class Parent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))
        self.blocks = nn.ModuleList([Captured(self)])

    def forward(self, x):
        return self.blocks[0](x)[:, :3]


class InPlace(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return self.linear(x.tanh_())


class Holder:
    """Something that is no tensor."""


class Holding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, holder):
        return self.linear(x)


class GivesAHolder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Holding()])

    def forward(self, x):
        return self.blocks[0](x, Holder())


@pytest.mark.parametrize(
    ("build", "words"),
    [
        (Parent, "'blocks.0' reads tensors that it is not given"),
        (
            lambda: nn.Sequential(nn.Linear(4, 4), InPlace(), nn.Linear(4, 3)),
            "'1' changes its inputs in place",
        ),
        (GivesAHolder, "'blocks.0' gets a Holder"),
    ],
    ids=["captured", "in place", "object"],
)
def test_blocks_that_cannot_be_computed_again_are_named(build, words):
    with pytest.raises(ModelError, match=words):
        fg.Objective(build().double(), (X, Y), checkpoint=True)


def test_weight_normalization():
    first = nn.utils.parametrizations.weight_norm(nn.Linear(4, 5))
    model = nn.Sequential(first, nn.Tanh(), nn.Linear(5, 3)).double()
    plain, again = (fg.Objective(model, (X, Y), checkpoint=on) for on in (False, True))
    assert_close(fg.Hessian(again).to_dense(), fg.Hessian(plain).to_dense())


class Forces(nn.Module):
    """Differentiates through its blocks in its forward."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))

    def forward(self, x):
        x = x.detach().requires_grad_()
        energy = self.blocks(x)
        force = torch.autograd.grad(energy.sum(), x, create_graph=True)[0]
        return energy + force[:, :3]


def test_third_derivatives_are_refused():
    model = Forces().double()
    plain, again = (fg.Objective(model, (X, Y), checkpoint=on) for on in (False, True))
    assert_close(again.gradient(), plain.gradient())
    with pytest.raises(FlatgaugeError):
        fg.Hessian(again) @ again.gradient()


class Stateful(nn.Module):
    """A block whose outputs depend on what was written to it before."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.step = nn.Linear(4, 4), 0

    def forward(self, x):
        return torch.tanh(self.linear(x) * (1 + self.step))


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Stateful()])
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        for step in range(3):
            self.blocks[0].step = step
            x = self.blocks[0](x)
        return self.head(x)


def test_a_block_that_computes_something_else_is_refused():
    with pytest.raises(ModelError, match=r"'blocks.0' does not compute the same again"):
        fg.Objective(Steps().double(), (X, Y), checkpoint=True).gradient()


class Returns(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x, torch.tanh(x) * self.weight


class Overwrites(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.blocks = nn.ModuleList([Returns(), Returns()])
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        x = self.first(x)
        for block in self.blocks:
            x, h = block(x)
            x.add_(h)
        return self.head(x)


def test_an_input_that_is_returned_and_overwritten():
    model = Overwrites().double()
    plain, again = (fg.Objective(model, (X, Y), checkpoint=on) for on in (False, True))
    assert again.value() == pytest.approx(plain.value(), rel=1e-12)
    assert_close(again.gradient(), plain.gradient())


def test_a_model_without_blocks_is_refused():
    with pytest.raises(OptionError, match="leave it out"):
        fg.Objective(Residual().double(), (IMAGES, Y[:5]), checkpoint=True)
