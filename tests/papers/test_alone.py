"""Networks that are trained by themselves, and those of CIFAR-10."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from flatgauge.errors import OptionError
from flatgauge.vectors import generator
from papers.alone import Descent, evaluate_alone, train_alone
from papers.experiment import Context
from papers.networks import alexnet, vgg
from papers.rangamani2019 import cifar
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


def test_other_descents_are_refused():
    with pytest.raises(OptionError, match="'newton' is not known: use sgd or adam"):
        train_alone(build, *some_data(), Descent("newton", 0.1, 1, 8), seed=0)


def test_shapes():
    pixels = torch.zeros(2, 3, 32, 32)
    net, deep = alexnet(cifar.ALEXNET), vgg(cifar.VGG16)
    assert net(pixels).shape == deep(pixels).shape == (2, 10)
    assert [m.in_features for m in net if isinstance(m, nn.Linear)] == [1024, 384, 192]
    assert sum(isinstance(m, nn.Conv2d) for m in deep) == 13
    assert sum(isinstance(m, nn.Dropout) for m in deep) == 2


@pytest.mark.parametrize("network", cifar.SHAPES)
def test_a_run_trains_and_measures(network):
    runs = {run.name: run for run in cifar.runs(quick=True)}
    run = runs[cifar.name_of("authors", network, 32, 0)]
    settings = {**run.settings, "measures": ["riemannian-spectral-norm[metric=layer]"]}
    settings["descent"]["epochs"] = 1
    with torch.random.fork_rng():
        found = run.compute(Context(True, None, torch.device("cpu")), plain(settings))
    (one,) = found["networks"]
    norm = one["measures"]["riemannian-spectral-norm[metric=layer]"]["value"]
    assert one["stored_by_authors"] == norm / (2 + 2 * one["measured_loss"])
    assert one["epochs"] == 1


def test_pixels_are_as_the_protocol_says():
    pixels = torch.rand(2, 3, 4, 4)
    full = {run.name: run.settings for run in cifar.runs(quick=False)}
    raw = cifar.prepared(pixels, full["cifar10-authors-alexnet-256-0"])
    assert torch.equal(raw, 255 * pixels)
    clean = cifar.prepared(pixels, full["cifar10-clean-vgg16-2000-2"])
    mean = torch.tensor(cifar.STANDARD["mean"])[:, None, None]
    deviation = torch.tensor(cifar.STANDARD["deviation"])[:, None, None]
    torch.testing.assert_close(clean * deviation + mean, pixels)
