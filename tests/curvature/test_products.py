"""What is kept of products, and what happens where memory ends."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
from support.cases import CASES, assert_close, random_vector
from torch import nn

import flatgauge as fg
from flatgauge.curvature import curvature_operator
from flatgauge.curvature.plan import Plan
from flatgauge.curvature.products import Products
from flatgauge.curvature.routes.double_backward import DoubleBackward
from flatgauge.curvature.samples import sample_length
from flatgauge.errors import OutOfMemoryError
from flatgauge.vectors import derivative_errors

X, Y = CASES["mlp"].data(12)


@pytest.fixture
def objective() -> fg.Objective:
    return fg.Objective(CASES["mlp"].model(), (X, Y), batch_size=4)


def right(objective: fg.Objective):
    vector = random_vector(objective)
    return vector, fg.Hessian(objective, "double-backward") @ vector


class Counted(DoubleBackward):
    """Notes the samples of what it prepares, and has room for `most` graphs of `size`."""

    name = "counted"

    def __init__(self, most: int = 10**9, size: int = 10**9):
        self.prepared: list[int] = []
        self.most, self.size = most, size
        self.alive: weakref.WeakSet = weakref.WeakSet()

    def prepare(self, objective, batch):
        samples = sample_length(batch)
        self.prepared.append(samples)
        if samples > self.size or len(self.alive) >= self.most:
            raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate")
        product = super().prepare(objective, batch)
        self.alive.add(product)
        return product


def by(route, objective, budget: int = 2**30) -> Products:
    return Products(Plan(objective, route, route, "asked for"), budget, "Hessian")


def test_all_batches_are_prepared_once_where_they_fit(objective):
    route, (vector, truth) = Counted(), right(objective)
    products = by(route, objective)
    for _ in range(3):
        assert_close(products([vector])[0], truth)
    assert route.prepared == [4, 4, 4]


def test_nothing_is_kept_without_room(objective):
    route, (vector, truth) = Counted(), right(objective)
    products = by(route, objective, budget=0)
    for _ in range(2):
        assert_close(products([vector])[0], truth)
    assert route.prepared == [4] * 6


def test_the_first_batches_are_kept_where_not_all_fit(objective, monkeypatch):
    class Saved:
        total = 100

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

    monkeypatch.setattr("flatgauge.curvature.products.kept_bytes", lambda *_: Saved())
    monkeypatch.setattr(
        "flatgauge.curvature.products.graph_room", lambda _, budget, __: budget
    )
    vector, truth = right(objective)
    # Beside what is kept there is room for the work of one more.
    for budget, again in ((199, 3), (200, 2), (299, 2), (300, 0), (10**9, 0)):
        route = Counted()
        products = by(route, objective, budget)
        for _ in range(2):
            assert_close(products([vector])[0], truth)
        assert len(route.prepared) == 3 + again, budget


@pytest.mark.parametrize("enough", [True, False])
def test_what_is_kept_is_given_up_where_others_have_no_room(
    objective, monkeypatch, enough
):
    vector, truth = right(objective)
    route = Counted()
    hessian = fg.Hessian(objective, route)
    assert_close(hessian @ vector, truth)
    plan = hessian.plan
    budget = 2**30 if enough else 0
    with monkeypatch.context() as patched:
        patched.setattr(curvature_operator, "memory_budget", lambda *_: budget)
        hessian.make_room()
    assert len(route.alive) == (3 if enough else 0)
    for _ in range(2):
        assert_close(hessian @ vector, truth)
    assert route.prepared == [4] * (3 if enough else 6)
    assert hessian.plan == plan


@pytest.mark.parametrize("most", [1, 2, 3])
def test_half_of_what_is_kept_is_given_up_where_memory_ends(objective, most):
    route, (vector, truth) = Counted(most=most), right(objective)
    products = by(route, objective)
    for _ in range(3):
        assert_close(products([vector])[0], truth)
    assert (most == 3) == (len(route.prepared) == 3)


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("batch_size", [4, 5, 12])
def test_batches_are_cut_where_one_does_not_fit(size, batch_size):
    objective = fg.Objective(CASES["mlp"].model(), (X, Y), batch_size=batch_size)
    route, (vector, truth) = Counted(size=size), right(objective)
    products = by(route, objective, budget=0)
    for _ in range(2):
        assert_close(products([vector])[0], truth)
    assert max(route.prepared[-6:]) <= size


def test_where_one_sample_does_not_fit_it_says_so(objective):
    with pytest.raises(OutOfMemoryError, match=r"of one sample does not fit.*GiB"):
        by(Counted(size=0), objective)([random_vector(objective)])


def test_batches_that_belong_together_are_not_cut():
    objective = CASES["resnet-train"].objective()
    assert objective.coupled
    with pytest.raises(OutOfMemoryError, match="cannot be cut"):
        by(Counted(size=1), objective)([random_vector(objective)])


def test_a_measure_that_does_not_fit_has_failed(objective, monkeypatch):
    def full(self, objective, batch):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(DoubleBackward, "prepare", full)
    report = fg.measure(objective, "hessian-spectral-norm", "fisher-rao-norm")
    found = report["hessian-spectral-norm"]
    assert found.status is fg.Status.FAILED
    assert "does not fit" in found.message
    assert report["fisher-rao-norm"].status.trusted


def test_recordings_that_are_not_kept_are_not_made_again(objective):
    class Replayed(Counted):
        replays = True

    recorded, plain = Replayed(), Counted()
    vector, truth = right(objective)
    products = Products(Plan(objective, recorded, plain, ""), 0, "Hessian")
    for _ in range(2):
        assert_close(products([vector])[0], truth)
        assert not products.replays
    assert (len(recorded.prepared), len(plain.prepared)) == (1, 5)
    products = Products(Plan(objective, recorded, plain, ""), 2**30, "Hessian")
    assert_close(products([vector])[0], truth)
    assert products.replays


@pytest.mark.parametrize("matrix", [fg.Hessian, fg.GaussNewton, fg.Fisher])
def test_what_is_kept_goes_with_its_operator(matrix):
    objective = CASES["mlp"].objective()
    operator = matrix(objective)
    _ = operator @ random_vector(objective)
    gone = weakref.ref(operator)
    gc.disable()
    try:
        del operator
        assert gone() is None
    finally:
        gc.enable()


def test_memory_is_given_in_words():
    data = CASES["mlp"].data()
    objective = fg.Objective(CASES["mlp"].model(), data, memory="1.5GiB")
    assert objective.memory == fg.Hessian(objective).memory == 3 * 2**29
    assert fg.Hessian(objective, memory_budget=0).memory == 0
    for amount in ("much", "-1GiB", "1.5GiBs"):
        with pytest.raises(fg.FlatgaugeError, match=r"memory= is .*'12GiB'"):
            fg.Objective(CASES["mlp"].model(), data, memory=amount)


class Weighted(nn.Module):
    """Weights a sample by a list beside it, which no slice of tensors cuts."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3).double()

    def forward(self, x, weights):
        return self.body(x) * torch.tensor(weights[: len(x)]).double()[:, None]


def test_batches_with_lists_are_not_cut():
    batch = ((X, [float(1 + i) for i in range(len(X))]), Y)
    objective = fg.Objective(Weighted(), [batch], derivatives="as given")
    with pytest.raises(OutOfMemoryError, match="cannot be cut"):
        by(Counted(size=3), objective)([random_vector(objective)])


def test_drawn_targets_are_not_drawn_again_for_pieces(objective):
    drawn = fg.Fisher(objective, "true", samples=1)
    assert not drawn.plan.route.cuts
    assert fg.Fisher(objective, "true").plan.route.cuts


def test_a_processor_without_memory_has_no_type_of_error():
    with pytest.raises(OutOfMemoryError), derivative_errors("Hessian"):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried")
