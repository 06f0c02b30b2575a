from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.cases import CASES, assert_close, lenet, mlp
from support.squares import slopes, slowly
from torch import nn

import flatgauge as fg
from flatgauge.diagonals.per_sample import (
    SquaredGradients,
    Trials,
    samples_stand_alone,
)
from flatgauge.diagonals.shares import Pull, by_slot
from flatgauge.errors import LossError, ModelError, NonFiniteError
from flatgauge.losses.loss import Rows


def slopes_twice(rows: Rows):
    yield from slopes(rows)
    yield from slopes(rows)


@pytest.mark.parametrize("case", [name for name in CASES if CASES[name].mode == "eval"])
def test_squares_are_those_of_single_rows(case):
    x, y = CASES[case].data(5)
    if CASES[case].tokens:
        y[0, 1] = y[1] = -100
    objective = fg.Objective(CASES[case].model(), (x, y), batch_size=3)
    found = SquaredGradients(objective).mean(slopes)
    assert_close(found, slowly(objective), 1e-11)


@pytest.mark.parametrize("case", [name for name in CASES if CASES[name].mode == "eval"])
def test_passes_that_share_a_backward_add_up_to_the_same(case):
    x, y = CASES[case].data(5)
    objective = fg.Objective(CASES[case].model(), (x, y), batch_size=3)

    def several(rows: Rows):
        columns = torch.stack([(rows.outputs.detach() + i).sin() for i in range(4)], 2)
        signs = torch.tensor([1.0, -1.0, 0.5, -2.0], dtype=columns.dtype)
        return by_slot(rows, columns, signs.expand(columns.shape[0], -1))

    alone = SquaredGradients(objective)
    together = SquaredGradients(objective)
    together.trials = replace(alone.trials, together=True)
    for one, other in zip(together.parts(several), alone.parts(several), strict=True):
        assert_close(one, other, 1e-12)


def test_a_model_is_tried_once_a_point(monkeypatch):
    objective, tried = CASES["mlp"].objective(), []
    in_double = fg.Objective.in_double
    monkeypatch.setattr(
        fg.Objective, "in_double", lambda self: tried.append(self) or in_double(self)
    )
    SquaredGradients(objective)
    SquaredGradients(objective, signed=False)
    assert len(tried) == 1
    SquaredGradients(objective.with_loss("normalized-cross-entropy"))
    SquaredGradients(objective.at(objective.parameters))
    assert len(tried) == 3


class Doubled(torch.autograd.Function):
    """An operation whose backward cannot be done for several passes at a time."""

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, slope):
        return 2 * slope * (1 if math.isfinite(float(slope.detach().sum())) else 0)


class Doubling(nn.Module):
    def forward(self, x):
        return Doubled.apply(x)


@pytest.mark.gpu
def test_passes_share_a_backward_on_a_gpu_where_they_can():
    plain = nn.Sequential(nn.Flatten(), mlp(64, 5, 3)).double()
    own = nn.Sequential(plain, Doubling())
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    data = (x, torch.arange(6) % 3)
    for model, together in ((plain, True), (lenet().double(), True), (own, False)):
        squares = SquaredGradients(fg.Objective(model, data, device="cuda"))
        assert squares.trials.together is together
        assert squares.trials.singly == set()
        right = SquaredGradients(fg.Objective(model, data)).mean(slopes)
        found = squares.mean(slopes)
        assert_close({n: t.cpu() for n, t in found.items()}, right, 1e-11)


def test_a_backward_that_asks_for_numbers_does_one_pass_at_a_time():
    model = nn.Sequential(mlp(4, 5, 3).double(), Doubling())
    x, y = CASES["mlp"].data()
    objective = fg.Objective(model, (x, y))
    squares = SquaredGradients(objective)
    squares.trials = Trials(together=True)
    found = squares.mean(slopes_twice)
    assert not squares.trials.together
    assert_close(found, {n: 2 * t for n, t in slowly(objective).items()}, 1e-11)


IN_PLACE = nn.Sequential(
    nn.Conv2d(1, 2, 3),
    nn.BatchNorm2d(2),
    nn.ReLU(inplace=True),
    nn.Flatten(),
    nn.Linear(72, 4),
    nn.ReLU(inplace=True),
    nn.Linear(4, 3),
)


@pytest.mark.parametrize(
    "model", [lenet(), nn.Sequential(nn.Flatten(), mlp(64, 5, 3)), IN_PLACE]
)
def test_plain_networks_need_no_gradients_of_single_samples(model):
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    objective = fg.Objective(model.double(), (x, torch.arange(6) % 3))
    assert SquaredGradients(objective).trials.singly == set()


def test_a_head_of_zeros_hides_nothing():
    """Samples in another order, which only slopes that are not 0 give away."""

    class Turned(nn.Linear):
        def forward(self, x):
            return super().forward(x.flip(0)).flip(0)

    model = Turned(4, 2).double()
    for parameter in model.parameters():
        nn.init.zeros_(parameter)
    x = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(0))
    objective = fg.Objective(model, (x.double(), torch.arange(5 * 6).reshape(5, 6) % 2))
    assert set(SquaredGradients(objective).trials.singly) == {"weight", "bias"}


def test_in_place_activations_that_are_silent_on_the_first_samples():
    """The samples that are checked leave every unit active; later ones do not."""
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True), nn.Linear(2, 3))
    model = model.double()
    model[0].weight.data = torch.eye(2, dtype=torch.float64)
    model[0].bias.data.zero_()
    x = torch.tensor([[1.0, 2], [2, 1], [1, 1], [-1, 2], [2, -3], [-1, -1]]).double()
    objective = fg.Objective(model, (x, torch.arange(6) % 3))
    squares = SquaredGradients(objective)
    assert squares.trials.singly == set()
    assert_close(squares.mean(slopes), slowly(objective))


def test_positive_and_negative_parts():
    objective = CASES["mlp"].objective()

    def signed(rows):
        for sign in (1.0, 1.0, -1.0):
            one = next(iter(slopes(rows)))
            yield Pull(one.columns, one.signs * sign)

    squares = SquaredGradients(objective)
    plus, minus = squares.parts(signed)
    once = squares.mean(slopes)
    assert_close(plus, {n: 2 * t for n, t in once.items()})
    assert_close(minus, once)


def test_coupled_samples_are_refused():
    class Centred(nn.Linear):
        def forward(self, x):
            return super().forward(x - x.mean(0))

    objective = fg.Objective(Centred(4, 3).double(), CASES["mlp"].data())
    assert not samples_stand_alone(objective)
    assert samples_stand_alone(CASES["mlp"].objective())
    with pytest.raises(ModelError, match="influence each other"):
        SquaredGradients(objective)


def test_a_callable_loss_is_refused():
    with pytest.raises(LossError, match="use a named loss"):
        SquaredGradients(CASES["mlp"].objective(lambda f, y: f.square().mean()))


def test_results_that_are_not_finite():
    class Root(nn.Linear):
        def forward(self, x):
            return super().forward(x * 0).abs().sqrt()

    objective = fg.Objective(Root(4, 3, bias=False).double(), CASES["mlp"].data())
    with pytest.raises(NonFiniteError, match="diagonal with respect to 'weight'"):
        SquaredGradients(objective).mean(slopes)
