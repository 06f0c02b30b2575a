"""Products with many vectors at once are those with each of them."""

from __future__ import annotations

import pytest
import torch
from support.cases import Gpt, Residual, assert_close, mlp
from torch import nn

import flatgauge as fg
from flatgauge.curvature import products
from flatgauge.curvature.routes import ROUTES
from flatgauge.curvature.routes.double_backward import GradientGraph
from flatgauge.vectors import gaussian, generator

X, Y = torch.randn(7, 5).double(), torch.tensor([0, 1, 2, 0, 1, 2, 0])
IMAGES, TOKENS = torch.randn(7, 1, 6, 6).double(), torch.randint(0, 7, (3, 5))


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(5, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x):
        return self.head(self.lstm(x[:, None])[0][:, 0])


CASES = {
    "mlp": lambda: (mlp(5, 4, 3, activation=nn.Tanh), (X, Y)),
    "residual": lambda: (Residual(), (IMAGES, Y)),
    "gpt": lambda: (Gpt(), (TOKENS, TOKENS)),
    "lstm": lambda: (Recurrent(), (X, Y)),
}


@pytest.fixture(params=CASES)
def objective(request):
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model, data = CASES[request.param]()
    return fg.Objective(model.double(), data)


def prepared(objective: fg.Objective) -> GradientGraph:
    with objective.isolated():
        batch = objective.first_batch()
        found = ROUTES["double-backward"]().prepare(objective, batch)
    assert isinstance(found, GradientGraph)
    return found


def some(objective: fg.Objective, count: int = 5):
    random = generator(3)
    return [gaussian(objective.parameters, random) for _ in range(count)]


def test_they_are_the_same(objective):
    graph, vectors = prepared(objective), some(objective)
    with objective.isolated():
        for found, vector in zip(graph.many(vectors), vectors, strict=True):
            assert_close(found, graph(vector))


def test_the_operator_asks_for_them_at_once(objective, monkeypatch):
    asked = []
    own = GradientGraph.many

    def many(self, vectors):
        asked.append(len(vectors))
        return own(self, vectors)

    monkeypatch.setattr(GradientGraph, "many", many)
    vectors = some(objective)
    hessian = fg.Hessian(objective)
    found = hessian @ vectors
    assert asked == [5]
    for image, vector in zip(found, vectors, strict=True):
        assert_close(image, hessian @ vector)
    # What is large is done one by one.
    monkeypatch.setattr(products, "AT_ONCE", 1)
    assert_close((fg.Hessian(objective) @ vectors)[0], found[0])
    assert asked == [5]


def test_parts_of_vectors(objective):
    names = list(objective.parameters)[1:]
    vectors = [{name: one[name] for name in names} for one in some(objective)]
    graph = prepared(objective)
    with objective.isolated():
        for found, vector in zip(graph.many(vectors), vectors, strict=True):
            assert list(found) == names
            assert_close(found, graph(vector))


@pytest.mark.parametrize("trouble", ["wrong", "refused"])
def test_what_cannot_be_done_at_once_is_done_one_by_one(trouble, monkeypatch):
    objective = fg.Objective(mlp(5, 4, 3, activation=nn.Tanh).double(), (X, Y))
    own = GradientGraph.pulled

    def pulled(self, vector, *, together):
        if together and trouble == "refused":
            raise RuntimeError("no batching rule")
        found = own(self, vector, together=together)
        if together:
            found["0.bias"] = found["0.bias"] * 1.001
        return found

    monkeypatch.setattr(GradientGraph, "pulled", pulled)
    graph, vectors = prepared(objective), some(objective)
    with objective.isolated():
        for found, vector in zip(graph.many(vectors), vectors, strict=True):
            assert_close(found, graph(vector))
