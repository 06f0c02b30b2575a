"""How far the convex problems are solved."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import flatgauge as fg
from flatgauge.diagonals import diagonal
from flatgauge.measures import normalized_sharpness

NAME = "normalized-sharpness"


@pytest.fixture
def objective():
    """Not piecewise affine, so that its diagonal is the basis's or an estimate."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(12, 24), nn.Tanh(), nn.Linear(24, 4)).double()
    inputs, targets = torch.randn(32, 12).double(), torch.randint(0, 4, (32,))
    return fg.Objective(model, (inputs, targets))


@pytest.fixture
def asked(monkeypatch):
    """The tolerances that the solver was given."""
    seen, together = set(), normalized_sharpness.balance_together

    def watched(problems, tol):
        seen.add(tol)
        return together(problems, tol)

    monkeypatch.setattr(normalized_sharpness, "balance_together", watched)
    return seen


def run(objective, **options):
    return fg.measure(objective, NAME, options={NAME: options})[NAME]


def test_an_exact_diagonal_is_worth_all_digits(objective, asked):
    found = run(objective)
    assert found.status is fg.Status.EXACT
    assert found.details["gap"] <= 1e-12
    assert asked == {1e-12}


def test_an_estimate_is_worth_a_hundredth_of_its_error(objective, asked, monkeypatch):
    monkeypatch.setattr(diagonal, "BASIS_PARAMETERS", 0)
    found = run(objective)
    (tol,) = asked
    assert found.details["method"] == "hutchinson"
    assert found.uncertainty > 0
    assert tol == 1e-4
    assert found.details["gap"] <= tol
    best = run(objective, tol=1e-12)
    assert asked == {1e-4, 1e-12}
    assert abs(found.value - best.value) <= 0.01 * best.uncertainty
    assert found.uncertainty == pytest.approx(best.uncertainty, rel=0.05)


def test_a_good_estimate_is_worth_more(objective, asked, monkeypatch):
    # Many probes; the bound on the gap would otherwise be what is seen.
    monkeypatch.setattr(diagonal, "BASIS_PARAMETERS", 0)
    monkeypatch.setattr(normalized_sharpness, "MOST_GAP", 1.0)
    found = run(objective, probes=200)
    (tol,) = asked
    relative = found.uncertainty / found.value
    assert 0.002 * relative <= tol <= 0.05 * relative


def test_what_is_given_is_kept(objective, asked):
    found = run(objective, tol=1e-3)
    assert asked == {1e-3}
    assert found.details["gap"] <= 1e-3
