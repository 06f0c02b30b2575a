"""Products with many vectors at once are those with each of them."""

from __future__ import annotations

import pytest
import torch
from support.cases import Gpt, Residual, assert_close, mlp
from torch import nn

import flatgauge as fg
from flatgauge.curvature import many, products
from flatgauge.curvature.dense import dense_hessian
from flatgauge.curvature.many import ManyProducts
from flatgauge.curvature.operator import Block
from flatgauge.curvature.routes import ROUTES, double_backward
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


@pytest.mark.parametrize("together", [3, 7, 1000])
def test_the_matrix_is_that_of_torch(objective, together, monkeypatch):
    monkeypatch.setattr(many, "LEAST", together)
    monkeypatch.setattr(many, "MOST", together)
    hessian = fg.Hessian(objective)
    assert hessian.as_matrix(instead_of=0) is None
    found = hessian.as_matrix(instead_of=10**6)
    assert found is not None
    truth = dense_hessian(objective)
    torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-11)
    assert hessian.products == hessian.dimension
    (vector,) = some(objective, 1)
    whole = hessian @ vector
    assert_close(whole, fg.Hessian(objective) @ vector)
    names = list(objective.parameters)[1:]
    of_part = Block(hessian, names) @ {name: vector[name] for name in names}
    first = next(iter(vector))
    rest = {**vector, first: torch.zeros_like(vector[first])}
    assert_close(of_part, {name: (hessian @ rest)[name] for name in names})


def test_rows_that_were_timed_are_not_made_again(objective, monkeypatch):
    monkeypatch.setattr(many, "LEAST", 2)
    monkeypatch.setattr(many, "MOST", 2)
    own, made = ManyProducts._rows, []

    def counted(self, start):
        made.append(start)
        return own(self, start)

    monkeypatch.setattr(ManyProducts, "_rows", counted)
    hessian = fg.Hessian(objective)
    assert hessian.matrix_seconds(instead_of=10**6)
    assert len(made) == 3
    found = hessian.as_matrix(instead_of=10**6)
    assert sorted(made) == list(range(0, hessian.dimension, 2))
    truth = dense_hessian(objective)
    torch.testing.assert_close(found, truth, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("trouble", ["wrong", "refused", "swapped", "mixed"])
def test_what_cannot_be_done_at_once_is_done_one_by_one(trouble, monkeypatch):
    objective = fg.Objective(mlp(5, 4, 3, activation=nn.Tanh).double(), (X, Y))
    own = ManyProducts.__call__

    def wrong(self, vectors, onto):
        if trouble == "refused":
            raise RuntimeError("no batching rule")
        found = own(self, vectors, onto)
        if trouble == "swapped":
            return {name: image.flip(0) for name, image in found.items()}
        if trouble == "mixed":
            return {n: image.mean(0, True) + 0 * image for n, image in found.items()}
        return {**found, "0.bias": found["0.bias"] * 1.001}

    monkeypatch.setattr(ManyProducts, "__call__", wrong)
    graph, vectors = prepared(objective), some(objective)
    with objective.isolated():
        assert graph.at_once is None
        for found, vector in zip(graph.many(vectors), vectors, strict=True):
            assert_close(found, graph(vector))
        matrix = graph.matrix() / objective.sample_count
    truth = dense_hessian(objective)
    torch.testing.assert_close(matrix, truth, rtol=1e-10, atol=1e-11)
    assert fg.Hessian(objective).as_matrix(instead_of=10**6) is None


def test_a_batch_that_cannot_be_done_at_once_goes_beside_others(objective, monkeypatch):
    """A network may take another path on other data."""
    whole = fg.Hessian(objective).as_matrix(instead_of=10**6)
    own = many.many_products

    def first_only(one, batch, truth):
        return None if batch.index else own(one, batch, truth)

    monkeypatch.setattr(double_backward, "many_products", first_only)
    inputs, targets = objective.first_batch().inputs, objective.first_batch().targets
    cut = fg.Objective(objective.model(), (inputs, targets), batch_size=2)
    found = fg.Hessian(cut).as_matrix(instead_of=10**6)
    torch.testing.assert_close(found, whole, rtol=1e-9, atol=1e-10)
