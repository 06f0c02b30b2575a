from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import flatgauge as fg
from flatgauge.diagonals import diagonal
from flatgauge.measures.traces import Traces

NAME = "matrix-normalized-sharpness"


def smooth(dtype=torch.float64):
    """Not piecewise affine, so that its diagonal is the basis's or an estimate."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 20), nn.Tanh(), nn.Linear(20, 4)
    ).to(dtype)
    inputs, targets = torch.randn(32, 12, dtype=dtype), torch.randint(0, 4, (32,))
    optimizer = torch.optim.Adam(model.parameters(), 1e-2)
    for _ in range(60):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(inputs), targets).backward()
        optimizer.step()
    return fg.Objective(model, (inputs, targets))


@pytest.fixture
def estimated(monkeypatch):
    """Networks of any size are too large for one product a parameter."""
    monkeypatch.setattr(diagonal, "BASIS_PARAMETERS", 0)


def run(objective, seed=0, **options):
    return fg.measure(objective, NAME, seed=seed, options={NAME: options})[NAME]


def test_estimates_are_near_the_truth_and_within_their_errors(monkeypatch):
    objective = smooth()
    truth = run(objective)
    assert truth.status is fg.Status.EXACT
    monkeypatch.setattr(diagonal, "BASIS_PARAMETERS", 0)
    found = [run(objective, seed) for seed in range(12)]
    assert all(one.status is fg.Status.ESTIMATED for one in found)
    assert all("inflate" not in one.message for one in found)
    ratios = np.array([one.value / truth.value for one in found])
    assert ratios.min() > 0.9
    assert ratios.max() < 1.1
    deviations = [(one.value - truth.value) / one.uncertainty for one in found]
    assert np.abs(deviations).max() < 3.5
    assert np.std(deviations) > 0.3


def test_estimates_follow_rescaled_layers_exactly(estimated):
    model = nn.Sequential(nn.Linear(5, 8, bias=False), nn.LeakyReLU(), nn.Linear(8, 3))
    data = (torch.randn(9, 5).double(), torch.randint(0, 3, (9,)))

    def loss(outputs, targets):
        return nn.functional.cross_entropy(outputs, targets, reduction="none")

    objective = fg.Objective(model.double(), data, loss)
    factor = {"0.weight": 8.0, "2.weight": 0.125}
    moved = {n: t * factor.get(n, 1.0) for n, t in objective.parameters.items()}
    before, after = run(objective), run(objective.at(moved))
    assert before.details["method"] == "hutchinson"
    assert after.value == pytest.approx(before.value, rel=1e-10)
    assert after.uncertainty == pytest.approx(before.uncertainty, rel=1e-8)


def test_the_posterior_of_equation_11_takes_the_same_traces(estimated):
    objective, name = smooth(), "pac-bayes-bound"
    report = fg.measure(objective, NAME, name, options={name: {"samples": 4}})
    assert report[name].details["method"] == "hutchinson"
    assert report[name].cost.products == 0


def test_roots_of_noise_are_counted_in_full():
    random, inside = np.random.default_rng(0), []
    factors = {f"noise{index}": 1.0 for index in range(20)} | {"signal": 1.0}
    for _ in range(100):
        samples = [
            {name: random.normal(25.0 * (name == "signal")) for name in factors}
            for _ in range(20)
        ]
        found = Traces.averaged(samples, "any").root_sum(factors)
        assert found.value == sum(found.layers.values())
        assert len(found.vanishing) >= 15
        inside.append(abs(found.value - 5.0) <= 2 * found.error)
    assert np.mean(inside) >= 0.93


def test_exact_traces_have_no_error():
    exact = Traces({"a": 4.0, "b": -1.0}, [], "exact", fg.Status.EXACT, "")
    found = exact.root_sum({"a": 3.0, "b": 2.0})
    assert (found.value, found.error, found.vanishing) == (6.0, None, [])


def test_a_zero_that_is_all_clipping_says_so():
    """Between two equal minima every tensor bends downwards."""

    class Double(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.tensor(0.1, dtype=torch.float64))

        def forward(self, x):
            return (self.weight**2 - 1) * x

    data = (torch.ones(2, 1).double(), torch.zeros(2, 1).double())
    objective = fg.Objective(Double(), data, "mse")
    name = "matrix-normalized-sharpness"
    report = fg.measure(objective, name)
    assert report[name].value == 0
    assert "was clipped to 0" in report[name].caution
    assert f"{name}: {report[name].caution}" in str(report)
    near = fg.measure(objective.at({"weight": torch.tensor(0.9).double()}), name)
    assert near[name].value > 0
    assert near[name].caution == ""
