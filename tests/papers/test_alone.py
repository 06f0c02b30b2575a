"""Networks that are trained by themselves, and those of CIFAR-10."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from flatgauge.errors import OptionError
from flatgauge.vectors import generator
from papers import alone
from papers.alone import Descent, evaluate_alone, train_alone
from papers.experiment import Context
from papers.networks import alexnet, vgg
from papers.rangamani2019 import cifar
from papers.rangamani2019.lines import NORMALIZATIONS
from papers.store import plain
from papers.training import Goal


def build() -> nn.Sequential:
    return nn.Sequential(nn.Linear(5, 7), nn.Tanh(), nn.Linear(7, 3)).double()


def some_data() -> tuple[torch.Tensor, torch.Tensor]:
    random = generator(0)
    inputs = torch.randn(22, 5, generator=random, dtype=torch.float64)
    return inputs, inputs[:, :3].argmax(1)


DESCENT = Descent("sgd", 0.1, epochs=4, batch_size=8, momentum=0.9, halved_every=2)


def test_it_is_momentum_with_a_rate_that_is_halved():
    inputs, targets = some_data()
    with torch.random.fork_rng():
        trained = train_alone(build, inputs, targets, DESCENT, seed=3)
        torch.manual_seed(3)
        model = build()
    speed = [torch.zeros_like(p) for p in model.parameters()]
    order = generator(3)
    for rate in (0.1, 0.1, 0.05, 0.05):
        for rows in torch.randperm(22, generator=order).split(8):
            loss = F.cross_entropy(model(inputs[rows]), targets[rows])
            slopes = torch.autograd.grad(loss, list(model.parameters()))
            with torch.no_grad():
                for p, v, slope in zip(model.parameters(), speed, slopes, strict=True):
                    v.mul_(0.9).add_(slope)
                    p.sub_(rate * v)
    for own, other in zip(trained.model.parameters(), model.parameters(), strict=True):
        torch.testing.assert_close(own, other, rtol=1e-12, atol=1e-14)
    assert (trained.epochs, trained.reached) == (4, None)
    assert [entry["epoch"] for entry in trained.history] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("rate", "epochs"), [(0.0, 6), (0.5, 20)], ids=["dead", "learns"]
)
def test_what_only_guesses_is_given_up(rate, epochs):
    inputs, targets = some_data()
    # A third of each class, as far as an untrained network knows.
    targets = (targets + torch.arange(22)) % 3 if rate == 0 else targets
    descent = Descent("sgd", rate, epochs=20, batch_size=8, given_up_after=6)
    with torch.random.fork_rng():
        trained = train_alone(build, inputs, targets, descent, seed=0)
        assert (trained.history[-1]["accuracy"] > 0.4) == (rate > 0)
        assert trained.epochs == epochs
        seldom = train_alone(build, inputs, targets, descent, seed=0, every=5)
        assert seldom.epochs == (10 if rate == 0 else 20)


def test_it_ends_at_the_goal():
    inputs, targets = some_data()
    descent = Descent("adam", 0.05, epochs=200, batch_size=8)
    with torch.random.fork_rng():
        trained = train_alone(
            build, inputs, targets, descent, seed=0, goal=Goal(1.0, math.inf), every=3
        )
        never = train_alone(
            build, inputs, targets, DESCENT, seed=0, goal=Goal(0.0, 1e-9)
        )
    assert trained.reached
    assert trained.epochs < 200
    assert trained.epochs % 3 == 0
    assert evaluate_alone(trained.model, inputs, targets)[1] == 1
    assert (never.reached, never.epochs) == (False, 4)


def test_the_goal_is_looked_at_on_all_samples(monkeypatch):
    monkeypatch.setattr(alone, "EVALUATED", 8)
    inputs, targets = some_data()
    random_targets = torch.randint(0, 3, (22,), generator=generator(1))
    random_targets[:8] = targets[:8]
    descent = Descent("adam", 0.02, epochs=300, batch_size=8)
    with torch.random.fork_rng():
        trained = train_alone(
            build, inputs, random_targets, descent, seed=0, goal=Goal(0.0, 0.6)
        )
    *before, last = (entry["loss"] for entry in trained.history)
    assert trained.reached
    assert evaluate_alone(trained.model, inputs, random_targets)[0] < 0.6
    # The first samples alone would have met it earlier.
    assert last < 0.6
    assert min(before) < 0.6


def test_it_ends_where_the_loss_is_no_number():
    def lost() -> nn.Module:
        model = build()
        nn.init.constant_(model[0].weight, math.nan)
        return model

    with torch.random.fork_rng():
        trained = train_alone(lost, *some_data(), DESCENT, seed=0)
    assert trained.epochs == 1
    assert math.isnan(trained.history[-1]["loss"])


def test_other_descents_are_refused():
    with pytest.raises(OptionError, match="'newton' is not known: use sgd or adam"):
        train_alone(build, *some_data(), Descent("newton", 0.1, 1, 8), seed=0)


def test_shapes():
    pixels = torch.zeros(2, 3, 32, 32)
    net, deep = alexnet(cifar.ALEXNET), vgg(cifar.VGG16)
    assert net(pixels).shape == deep(pixels).shape == (2, 10)
    assert [m.in_features for m in net if isinstance(m, nn.Linear)] == [4096, 384, 192]
    assert sum(isinstance(m, nn.Conv2d) for m in deep) == 13
    assert [m.p for m in deep if isinstance(m, nn.Dropout)] == [0.5, 0.5]
    widths = [m.out_features for m in deep if isinstance(m, nn.Linear)]
    assert widths == [512, 240, 10]


def test_initial_weights_of_the_deep_network():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        authors, clean = (
            vgg(cifar.VGG16 | change) for change in ({}, cifar.CLEAN["vgg16"])
        )
    for net, deviation in ((authors, 0.01), (clean, math.sqrt(2 / 512))):
        first = next(m for m in net if isinstance(m, nn.Linear))
        assert float(first.weight.detach().std()) == pytest.approx(deviation, rel=0.02)
        assert not any(m.bias.any() for m in net if hasattr(m, "bias"))
    assert not any(m.p for m in clean if isinstance(m, nn.Dropout))


@pytest.mark.parametrize("network", cifar.SHAPES)
def test_a_run_trains_and_measures(network):
    runs = {run.name: run for run in cifar.runs(quick=True)}
    run = runs[cifar.name_of("authors", network, 32, 0)]
    settings = {**run.settings, "measures": ["riemannian-spectral-norm[metric=layer]"]}
    settings["descent"]["epochs"] = 1
    with torch.random.fork_rng():
        found = run.compute(Context(True, None, torch.device("cpu")), plain(settings))
    (one,) = found["networks"]
    assert one["lines"]["axis"][10] == 0
    for normalize in NORMALIZATIONS:
        lines = one["lines"][normalize]
        assert [len(line) for line in lines] == [21] * 5
        assert len({tuple(line) for line in lines}) == 5
        for line in lines:
            assert line[10] == lines[0][10] < min(line[0], line[20])
    norm = one["measures"]["riemannian-spectral-norm[metric=layer]"]["value"]
    assert one["stored_by_authors"] == norm / (2 + 2 * one["measured_loss"])
    assert one["epochs"] == 1


def test_a_network_that_was_lost_is_stored_as_it_is():
    runs = {run.name: run for run in cifar.runs(quick=True)}
    settings = plain(runs[cifar.name_of("authors", "alexnet", 32, 0)].settings)
    settings["descent"]["rate"] = 1e30
    with torch.random.fork_rng():
        found = cifar.compute(Context(True, None, torch.device("cpu")), settings)
    (one,) = plain(found["networks"])
    assert one["train_loss"] is None
    assert one["measures"] == {}


def test_pixels_are_as_the_protocol_says():
    pixels = torch.rand(2, 3, 4, 4)
    full = {run.name: run.settings for run in cifar.runs(quick=False)}
    raw = cifar.prepared(pixels, full["cifar10-authors-alexnet-256-0"])
    assert torch.equal(raw, 255 * pixels)
    clean = cifar.prepared(pixels, full["cifar10-clean-vgg16-2000-2"])
    mean = torch.tensor(cifar.STANDARD["mean"])[:, None, None]
    deviation = torch.tensor(cifar.STANDARD["deviation"])[:, None, None]
    torch.testing.assert_close(clean * deviation + mean, pixels)
