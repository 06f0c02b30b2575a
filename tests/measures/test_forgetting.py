"""Vectors of earlier measures leave where they would fill the memory."""

from __future__ import annotations

import pytest
import torch
from support.cases import mlp

import flatgauge as fg
from flatgauge.measures import forgetting
from flatgauge.measures.forgetting import bytes_held, forget_vectors
from flatgauge.measures.workbench import Workbench

OPTIONS = {"curvature": "hessian", "probes": 10}


@pytest.fixture
def work(monkeypatch) -> Workbench:
    monkeypatch.setattr(Workbench, "method", lambda *_: "hutchinson")
    x = torch.randn(12, 4, generator=torch.Generator().manual_seed(0)).double()
    data = x, torch.arange(12) % 3
    return Workbench(fg.Objective(mlp(4, 5, 3).double(), data, batch_size=5))


def vector_bytes(work: Workbench) -> int:
    return sum(tensor.nbytes for tensor in work.objective.parameters.values())


def room(monkeypatch, vectors: float, work: Workbench) -> None:
    budget = vectors * vector_bytes(work) / forgetting.SHARE
    monkeypatch.setattr(forgetting, "memory_budget", lambda *_: budget)


def extremes(work: Workbench):
    return work.extremes(work.objective, "layer", tol=1e-2, max_steps=30)


def test_what_is_held_is_counted_in_vectors(work):
    work.point(False)  # The objective's own.
    assert not bytes_held(work.facts, work.objective)
    work.diagonal(work.objective, **OPTIONS)
    extremes(work)
    sizes = [
        held / vector_bytes(work)
        for held in bytes_held(work.facts, work.objective).values()
    ]
    # Five replicates and their mean; one eigenvector.
    assert sizes == [6.0, 1.0]


def test_those_used_longest_ago_go_first(work, monkeypatch):
    room(monkeypatch, 100, work)
    diagonal, top = work.diagonal(work.objective, **OPTIONS), extremes(work)
    forget_vectors(work.facts, work.objective)
    assert work.diagonal(work.objective, **OPTIONS) is diagonal
    # The diagonal was used last.
    room(monkeypatch, 6, work)
    forget_vectors(work.facts, work.objective)
    assert work.diagonal(work.objective, **OPTIONS) is diagonal
    assert extremes(work) is not top


def test_what_was_forgotten_is_found_again_the_same(work, monkeypatch):
    room(monkeypatch, 1, work)
    before = work.diagonal(work.objective, **OPTIONS)
    hessian = work.hessian(work.objective)
    assert not bytes_held(work.facts, work.objective)
    after = work.diagonal(work.objective, **OPTIONS)
    assert after is not before
    for name, entries in before.mean.items():
        torch.testing.assert_close(after.mean[name], entries)
    # Operators and plain numbers stay.
    assert work.hessian(work.objective) is hessian
