"""What the measures of one run share."""

from __future__ import annotations

import pytest
import torch
from support.cases import mlp
from torch import nn

import flatgauge as fg
from flatgauge.curvature.hessian import Hessian
from flatgauge.curvature.many import ManyProducts
from flatgauge.measures.workbench import Workbench


@pytest.fixture
def work() -> Workbench:
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)).double()
    model = mlp(4, 5, 3, activation=nn.ReLU).double()
    return Workbench(fg.Objective(model, (x, torch.arange(12) % 3), batch_size=5))


def largest(work: Workbench, **options):
    given = {"tol": 1e-3, "max_steps": 50, **options}
    return work.extremes(work.objective, "layer", **given)


def test_the_surrogate_is_one_objective(work):
    assert work.surrogate("auto") is work.surrogate("auto")
    assert work.surrogate("auto").loss.name == "normalized-cross-entropy"
    assert work.surrogate("objective") is work.objective


def test_operators_are_told_apart_by_their_objective(work):
    hessian = work.hessian(work.objective)
    assert work.hessian(work.objective) is hessian
    assert work.hessian(work.surrogate("auto")) is not hessian
    assert work.counts() == [0, 0]


def test_operators_make_room_for_the_one_that_is_used(work, monkeypatch):
    both = [work.hessian(one) for one in (work.objective, work.surrogate("auto"))]
    asked = []
    monkeypatch.setattr(Hessian, "make_room", lambda self: asked.append(self))
    for one in both:
        assert work.hessian(one.objective) is one
    assert asked == both[::-1]


@pytest.mark.parametrize("reads", [True, False])
def test_a_matrix_is_made_for_eigenvalues_only_to_be_read(work, monkeypatch, reads):
    monkeypatch.setattr(ManyProducts, "reads", lambda self: reads)
    monkeypatch.setattr(ManyProducts, "price", lambda self: 1.0)
    found = largest(work)
    hessian = work.hessian(work.objective)
    made = hessian.dimension if reads else 0
    assert hessian.products == found.products + made
    assert ("matrix" in hessian.plan.reason) == reads


def test_losses_of_one_name_are_told_apart(work):
    single, double = (
        work.objective.with_loss(
            lambda f, y, factor=factor: factor * nn.functional.cross_entropy(f, y)
        )
        for factor in (1.0, 2.0)
    )
    assert single.loss.name == double.loss.name
    one, two = work.gradient(single), work.gradient(double)
    assert all(torch.allclose(2 * one[name], two[name]) for name in one)


def test_options_are_a_part_of_the_key(work):
    found = largest(work)
    products = work.products
    assert largest(work) is found
    assert work.products == products
    for other in ({"tol": 1e-6}, {"max_steps": 51}, {"both": True}):
        assert largest(work, **other) is not found
    assert work.products > products


def test_a_centered_point_is_one_point_of_its_own(work):
    point = work.point(True)
    assert work.point(True) is point
    found = largest(work, point=point)
    assert largest(work, point=point) is found
    assert largest(work) is not found


def test_an_exact_diagonal_serves_all_numbers_of_probes(work):
    found = work.diagonal(work.objective, "hessian", probes=10)
    assert found.method == "exact"
    assert work.diagonal(work.objective, "hessian", probes=20) is found
    assert work.exact_diagonal(work.objective) is found
