from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import special
from support.cases import KNOWN
from torch.distributions import Normal, kl_divergence

from flatgauge.errors import OptionError
from flatgauge.solvers.pac_bayes import (
    ScaleGrid,
    gaussian_kl,
    lambda_grid,
    least_kl,
    mean_upper_bound,
    psi_bound,
    risk_bound,
)

CLOSED = KNOWN["closed_forms"]
KL = CLOSED["KL(6) corrected W=(1/2,-1/4,3/4) sP=1/2 sQ=1/4"]
BOUND = CLOSED["PAC-Bayes(1) m=1000 delta=.05 lambda=100 L_S(Q)=.1, that KL"]
PSI = CLOSED["Psi exact, single hypothesis, Bernoulli risk .3, m=10, lambda=5"]
NORM = 0.25 + 0.0625 + 0.5625


def exactly(value) -> object:
    return pytest.approx(float(value), rel=1e-12, abs=0)


def bernoulli_psi(lam: float, samples: int, risk: float) -> float:
    """Ψ(λ, m) = ln E exp(λ (p − k/m)) with k binomial: one hypothesis of 0-1 risk p."""
    terms = [
        math.log(math.comb(samples, k))
        + float(special.xlogy(k, risk) + special.xlog1py(samples - k, -risk))
        + lam * (risk - k / samples)
        for k in range(samples + 1)
    ]
    return float(special.logsumexp(terms))


def test_known_divergences():
    assert gaussian_kl(NORM, 3, 1 / 4, 1 / 16) == exactly(KL["value"])
    assert gaussian_kl(NORM, 3, 1 / 16, 1 / 16) == exactly(KL["sP_eq_sQ_eq7"])
    assert least_kl(NORM, 3, 1 / 16) == exactly(KL["min_over_sP"])


def test_divergence_agrees_with_torch_distributions():
    weight = torch.tensor([0.5, -0.25, 0.75], dtype=torch.float64)
    torch_kl = kl_divergence(Normal(weight, 0.25), Normal(0.0 * weight, 0.5)).sum()
    assert gaussian_kl(NORM, 3, 1 / 4, 1 / 16) == exactly(torch_kl)


@given(st.floats(-3, 3))
def test_least_divergence_is_the_minimum_over_the_prior(log_prior: float):
    assert gaussian_kl(NORM, 3, math.exp(log_prior), 1 / 16) >= least_kl(
        NORM, 3, 1 / 16
    )
    at = gaussian_kl(NORM, 3, NORM / 3 + 1 / 16, 1 / 16)
    assert at == exactly(least_kl(NORM, 3, 1 / 16))


@pytest.mark.parametrize(
    ("kind", "bound", "lam", "best"),
    [
        ("paper", "psi_lam2_2m", "opt_lambda_2m", "opt_bound_2m"),
        ("tight", "psi_lam2_8m", "opt_lambda_8m", "opt_bound_8m"),
    ],
)
def test_known_bounds(kind: str, bound: str, lam: str, best: str):
    kl = float(KL["value"])
    assert risk_bound(0.1, kl, 0.05, 100.0, psi_bound(100.0, 1000, kind)) == exactly(
        BOUND[bound]
    )
    chosen = float(BOUND[lam])
    at_best = risk_bound(0.1, kl, 0.05, chosen, psi_bound(chosen, 1000, kind))
    assert at_best == exactly(BOUND[best])


def test_known_psi():
    assert bernoulli_psi(5.0, 10, 0.3) == exactly(PSI["value"])
    assert psi_bound(5.0, 10, "paper") == exactly(PSI["lam2_2m"])
    assert psi_bound(5.0, 10, "tight") == exactly(PSI["lam2_8m"])


@given(st.floats(0, 1), st.integers(1, 30), st.floats(0.1, 30))
def test_tight_psi_bounds_the_exact_one(risk: float, samples: int, lam: float):
    assert bernoulli_psi(lam, samples, risk) <= psi_bound(lam, samples) + 1e-12


def test_lambda_grid_reaches_from_root_m_to_4m():
    for samples in (1, 4, 1000, 50_000):
        grid = lambda_grid(samples)
        assert grid[0] == pytest.approx(math.sqrt(samples))
        assert 2 * samples < grid[-1] <= 4 * samples * (1 + 1e-12)
        assert all(b == 2 * a for a, b in pairwise(grid))


@given(st.floats(0, 1), st.integers(1, 500), st.floats(1e-6, 0.5))
def test_mean_upper_bound_inverts_chernoff(mean: float, draws: int, delta: float):
    upper = mean_upper_bound(mean, draws, delta)
    assert mean <= upper <= 1
    # Pinsker: never above Hoeffding's bound.
    assert upper <= mean + math.sqrt(-math.log(delta) / (2 * draws)) + 1e-12
    if mean == 0:
        assert upper == pytest.approx(1 - delta ** (1 / draws), rel=1e-9)


def test_mean_upper_bound_holds_often_enough():
    random = torch.Generator().manual_seed(0)
    draws = (torch.rand(2000, 40, generator=random) < 0.3).double().mean(1)
    failed = sum(mean_upper_bound(mean, 40, 0.1) < 0.3 for mean in draws.tolist())
    assert 20 < failed < 200


@given(st.floats(-30, 30), st.sampled_from([1.01, 2 ** (1 / 8), 2.0]))
def test_rounding_to_the_grid_costs_no_more_than_stated(target: float, ratio: float):
    grid = ScaleGrid(ratio)
    square = torch.tensor([math.exp(target)], dtype=torch.float64)
    log_prior = grid.round(square)
    steps = float(log_prior) / grid.spacing
    assert steps == pytest.approx(round(steps), abs=1e-9)
    excess = 0.5 * (float(log_prior) + math.exp(target - float(log_prior)) - target - 1)
    assert -1e-12 <= excess <= grid.resolution + 1e-12


def test_grid_ends_and_price():
    grid = ScaleGrid(2.0)
    assert grid.count == 129
    assert grid.price == exactly(math.log(129))
    assert grid.variances[0] == exactly(2.0**-128)
    assert grid.variances[1] == pytest.approx(2.0**128)
    ends = grid.round(torch.tensor([1e-300, 1e300], dtype=torch.float64))
    assert ends.tolist() == pytest.approx([-128 * math.log(2), 128 * math.log(2)])


def test_bad_options_are_refused():
    with pytest.raises(OptionError, match="grid_ratio"):
        ScaleGrid(1.0)
    with pytest.raises(OptionError, match="tight"):
        psi_bound(1.0, 10, "loose")
