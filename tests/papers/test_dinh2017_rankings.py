"""Dinh et al.: several minima, and distances between distributions."""

from __future__ import annotations

import copy
import math

import pytest
import torch

import flatgauge as fg
from flatgauge.vectors import generator
from papers.dinh2017 import distances, several_minima
from papers.dinh2017.distances import Normal
from papers.dinh2017.networks import mlp, normal
from papers.dinh2017.ranking import RANKED_BY, in_ball
from papers.dinh2017.ranking_findings import (
    RADIAL,
    RESCALED,
    STANDARDIZED,
    keepers,
    pairs_swapped,
    ranking_several,
)
from papers.dinh2017.representation_findings import (
    distance_error,
    divergence_same,
    opposite,
    sign,
)
from papers.dinh2017.run import PAPER
from papers.dinh2017.verdicts import AGREES, DIFFERS
from papers.experiment import Context, Results
from papers.runner import ROOT
from papers.store import load, plain

QUICK = Context(True, None, torch.device("cpu"))


@pytest.fixture
def stored() -> Results:
    results = load(ROOT / "dinh2017" / "results", PAPER.runs(False), quick=False)
    return Results(copy.deepcopy(results.records))


def test_several_minima_take_any_order():
    invariant = "riemannian-spectral-norm[metric=node]"
    settings = {
        **several_minima.settings(True),
        "samples": 60,
        "measures": [RANKED_BY, "riemannian-spectral-norm[metric=layer]", invariant],
    }
    found = plain(several_minima.compute(QUICK, settings))
    results = Results({"several-minima": {"result": found}})
    assert ranking_several(results)[1] == AGREES
    assert pairs_swapped(results, RADIAL, RANKED_BY) == (3, 3)
    assert pairs_swapped(results, RESCALED, RANKED_BY) == (3, 3)
    assert pairs_swapped(results, RESCALED, invariant)[0] == 0
    for move in found["moves"].values():
        assert move["output change"] < 1e-12
    before = sorted(one[RANKED_BY]["value"] for one in found["before"])
    moved = found["moves"][RADIAL]["values"]
    after = sorted(one[RANKED_BY]["value"] for one in moved)
    assert after == pytest.approx(before, rel=1e-6)


def test_balls_do_not_meet():
    inputs, labels = normal(20, 3, seed=0), torch.arange(20) % 2
    minima = [fg.Objective(mlp([3, 4, 2], seed=s), (inputs, labels)) for s in range(3)]
    settings = several_minima.settings(True)
    wrapped = several_minima.in_balls(
        minima, [1.0, 4.0, 2.0], [1, 0, 2], inputs, labels, settings
    )
    model = wrapped.model()
    assert isinstance(model, several_minima.InBalls)
    for one in minima:
        twin = wrapped.at(in_ball(one))
        assert twin.value() == pytest.approx(one.value(), rel=1e-14)
        inside = [
            radial
            for radial in model.radials
            if math.dist(flat(radial.center), flat(one.parameters)) <= radial.delta
        ]
        assert len(inside) == 1
    factors = [(radial.rho / radial.rhat) ** 2 for radial in model.radials]
    assert factors == pytest.approx([2.0, 0.25, 2.0])


def flat(point: dict[str, torch.Tensor]) -> list[float]:
    return torch.cat([tensor.detach().flatten() for tensor in point.values()]).tolist()


def test_goals_are_in_the_opposite_order():
    assert several_minima.raised([1.0, 3.0, 2.0], 2.0) == [24.0, 6.0, 12.0]


def test_who_keeps_its_values_in_the_stored_results(stored):
    assert "normalized-sharpness" in keepers(stored, RESCALED)
    assert RANKED_BY not in keepers(stored, RESCALED)
    assert keepers(stored, RADIAL) == []
    assert "normalized-sharpness" in keepers(stored, STANDARDIZED)


def test_an_order_that_was_not_reached_takes_the_verdict_away(stored):
    assert ranking_several(stored)[1] == AGREES
    stored["several-minima"]["orders"][0]["measured"].reverse()
    assert ranking_several(stored)[1] == DIFFERS


def two_normals() -> tuple[Normal, Normal]:
    factor = normal(3, 3, seed=1)
    identity = torch.eye(3, dtype=torch.float64)
    return (
        Normal(normal(3, seed=2), factor @ factor.T + identity),
        Normal(normal(3, seed=3), identity),
    )


def test_divergences_agree_with_torch_and_with_samples():
    first, second = two_normals()
    kl = torch.distributions.kl_divergence(first.density(), second.density())
    assert distances.kullback_leibler(first, second) == pytest.approx(float(kl))
    standard = torch.randn(200_000, 3, generator=generator(0), dtype=torch.float64)
    points = first.draw(standard)
    logs = second.density().log_prob(points) - first.density().log_prob(points)
    sampled = 1 - float((logs / 2).exp().mean())
    assert distances.squared_hellinger(first, second) == pytest.approx(
        sampled, abs=5e-3
    )


def test_the_cheapest_move_of_normals_that_commute():
    mean, step = torch.zeros(2).double(), torch.tensor([3.0, 0.0]).double()
    first = Normal(mean, torch.diag(torch.tensor([1.0, 4.0]).double()))
    second = Normal(mean + step, torch.diag(torch.tensor([9.0, 4.0]).double()))
    assert distances.transport(first, second) == pytest.approx(math.hypot(3.0, 2.0))
    assert distances.transport(first, first) == pytest.approx(0.0, abs=1e-6)


def test_the_earth_mover_sees_a_shift():
    identity = torch.eye(2, dtype=torch.float64)
    here = Normal(torch.zeros(2).double(), 1e-6 * identity)
    there = Normal(torch.tensor([3.0, 4.0]).double(), 1e-6 * identity)
    assert distances.earth_movers(here, there, 50, 0) == pytest.approx(5.0, abs=1e-2)


def test_divergences_do_not_depend_on_the_representation_but_distances_do():
    settings = distances.settings(True)
    found = plain(distances.compute(QUICK, settings))
    results = Results({"distances": {"result": found}})
    assert divergence_same(results)[1] == AGREES
    models = found["models"][1:]
    assert opposite(models, "W2", "standardized")
    assert opposite(models, "W2", "whitened")


def test_samples_decide_beyond_two_standard_errors():
    assert sign([1.0, 1.1, 0.9], [2.0, 2.1, 1.9]) == 1
    assert sign([1.0, 1.1, 0.9], [1.1, 0.9, 1.0]) == 0
    assert sign(2.0, 1.0) == -1
    assert sign(1.0, 1.0 + 1e-12) == 0


def test_a_divergence_that_moves_takes_the_verdict_away(stored):
    assert distance_error(stored)[1] == divergence_same(stored)[1] == AGREES
    stored["distances"]["models"][1]["whitened"]["Kullback-Leibler"] *= 1.01
    assert divergence_same(stored)[1] == DIFFERS
