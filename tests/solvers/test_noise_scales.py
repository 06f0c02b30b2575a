from __future__ import annotations

import pytest
import torch
from support.cases import CASES, known_network

from flatgauge.objective import Objective
from flatgauge.solvers.noise_scales import NoiseScales
from flatgauge.uses import uses_of


def problem(objective: Objective, lam: float = 2.0):
    noisy = NoiseScales(objective, uses_of(objective).matrices, lam)
    logs = []
    for name in noisy.matrices:
        rows, columns = objective.parameters[name].shape[:2]
        logs += [
            torch.linspace(-3, -2, rows, dtype=torch.float64),
            torch.linspace(-1, 0, columns, dtype=torch.float64),
        ]
    return noisy, logs


def test_penalty_is_the_sum_over_all_entries():
    objective = CASES["lenet"].objective()
    noisy, logs = problem(objective)
    found = noisy.evaluate(logs, pairs=2, seed=0)
    for index, name in enumerate(noisy.matrices):
        weight = objective.parameters[name]
        variance = (logs[2 * index][:, None] + logs[2 * index + 1]).exp()
        variance = variance.view(*variance.shape, *[1] * (weight.ndim - 2))
        expected = float((weight.square() / (4 * variance)).sum())
        assert found.layers[name] == pytest.approx(expected)


@pytest.mark.parametrize("name", ["mlp", "lenet"])
def test_slopes_are_derivatives_of_the_value_for_the_same_draws(name: str):
    noisy, logs = problem(CASES[name].objective())
    log_step = 1e-5

    def value(which: int, entry: int, step: float) -> float:
        moved = [log.clone() for log in logs]
        moved[which][entry] += step
        random = torch.Generator().manual_seed(5)
        return noisy._pair(moved, random)[0]

    slopes = noisy._pair(logs, torch.Generator().manual_seed(5))[1]
    for which, entry in ((0, 1), (1, 0), (2, 2), (3, 1)):
        rise = value(which, entry, log_step) - value(which, entry, -log_step)
        numerical = rise / (2 * log_step)
        assert float(slopes[which][entry]) == pytest.approx(numerical, rel=1e-4)


def test_evaluation_says_how_far_from_stationary_it_is():
    noisy, logs = problem(known_network("A/ce"))
    better = noisy.descend(logs, steps=200, seed=0)
    first = noisy.evaluate(logs, pairs=100, seed=1)
    last = noisy.evaluate(better, pairs=100, seed=1)
    assert last.rise + last.penalty < first.rise + first.penalty
    assert last.left < 0.1 * first.left
    assert last.imbalance < 0.1 < first.imbalance


def test_the_objective_and_the_start_are_left_alone():
    objective = known_network("A/ce")
    noisy, logs = problem(objective)
    before = [log.clone() for log in logs]
    point = {name: tensor.clone() for name, tensor in objective.parameters.items()}
    noisy.descend(logs, steps=3, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(before, logs, strict=True))
    assert all(torch.equal(point[n], t) for n, t in objective.parameters.items())
