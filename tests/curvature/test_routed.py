"""What an operator with route="auto" begins with."""

from __future__ import annotations

import pytest
import torch
from cases import CASES, assert_close, random_vector
from torch import nn

import flatgauge as fg
from flatgauge.curvature import choose
from flatgauge.curvature.agreement import difference
from flatgauge.curvature.choose import Choice
from flatgauge.curvature.routes import resolve_route
from flatgauge.curvature.routes.route import Variant
from flatgauge.errors import ModelError


class Recorded(Variant):
    """Stands for a recording; refuses from the batch `limit` on."""

    order, words = 9, "recorded"
    launches = keeps = counted = replays = True
    limit = 10**9

    @classmethod
    def suits(cls, inner, objective, batch):
        return True

    def prepare(self, objective, batch):
        if batch.index >= self.limit:
            raise RuntimeError("no more\nof this")
        return self.inner.prepare(objective, batch)


@pytest.fixture
def objective():
    x, y = CASES["mlp"].data()
    return fg.Objective(CASES["mlp"].model(), [(x[:3], y[:3]), (x[3:], y[3:])])


@pytest.fixture(autouse=True)
def recorded(monkeypatch):
    monkeypatch.setattr(choose, "VARIANTS", [Recorded])


def check(hessian: fg.Hessian) -> None:
    for seed in range(3):
        vector = random_vector(hessian.objective, seed)
        truth = fg.Hessian(hessian.objective, "double-backward") @ vector
        assert_close(hessian @ vector, truth, 1e-12)


@pytest.mark.parametrize("matrix", [fg.Hessian, fg.GaussNewton])
def test_the_first_product_is_recorded(objective, matrix):
    operator = matrix(objective)
    vector = random_vector(objective)
    assert_close(operator @ vector, matrix(objective, operator.truth) @ vector, 1e-12)
    assert operator.choice.route.name == f"{operator.truth}, recorded"
    assert operator.choice.route.hesitant


@pytest.mark.parametrize("limit", [0, 1])
def test_a_failed_recording_leaves_the_truth(objective, monkeypatch, limit):
    monkeypatch.setattr(Recorded, "limit", limit)
    hessian = fg.Hessian(objective)
    check(hessian)
    assert hessian.choice.route.name == "double-backward"
    reason = hessian.choice.failures["double-backward, recorded"]
    assert reason == "RuntimeError: no more"


def test_nothing_is_recorded_where_it_is_not_wanted(objective):
    plain = [
        fg.Hessian(objective, "double-backward"),
        fg.Hessian(objective, expect=2),
        fg.Hessian(objective, memory_budget=0),
    ]
    torch.use_deterministic_algorithms(True)
    try:
        plain.append(fg.Hessian(objective))
    finally:
        torch.use_deterministic_algorithms(False)
    for hessian in plain:
        check(hessian)
        assert hessian.choice.route.name == "double-backward"


def test_a_recording_that_was_asked_for_does_not_fall_back(objective, monkeypatch):
    monkeypatch.setattr(Recorded, "limit", 1)
    route = Recorded(fg.Hessian(objective).choice.route)
    with pytest.raises(ModelError, match="no more"):
        _ = fg.Hessian(objective, route) @ random_vector(objective)


class Late(nn.Module):
    """Samples with x₀ < 0 pass a layer normalization, which others do not meet."""

    def __init__(self):
        super().__init__()
        self.body, self.norm, self.head = (
            nn.Linear(4, 4),
            nn.LayerNorm(4),
            nn.Linear(4, 3),
        )

    def forward(self, x):
        h = self.body(x).tanh()
        if (x[:, 0] < 0).any():
            h = torch.where(x[:, :1] < 0, self.norm(h), h)
        return self.head(h)


def test_a_route_that_is_wrong_on_a_later_batch_only():
    """Reverse over forward is silently wrong through layer normalization."""
    torch.manual_seed(0)
    x = torch.randn(8, 4).double()
    x[:, 0] = x[:, 0].abs() * torch.tensor([1.0] * 4 + [-1.0] * 4)
    data = (x, torch.arange(8) % 3)
    objective = fg.Objective(Late().double(), data, batch_size=4)
    hessian = fg.Hessian(objective, expect=2)
    hessian._follow(Choice(resolve_route("reverse-over-forward")))
    vector = random_vector(objective)
    truth = fg.Hessian(objective, "double-backward") @ vector
    assert difference(hessian @ vector, truth) < 1e-9
    assert hessian.choice.route.name == "double-backward"
    assert "off by" in hessian.choice.failures["reverse-over-forward"]
    alone = fg.Hessian(objective, "reverse-over-forward") @ vector
    assert difference(alone, truth) > 1e-3
