"""The diagonal Fisher-Rao norm of many rows, from random signs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import flatgauge as fg
from flatgauge.vocabulary import Status

EXACT = "fisher-rao-norm[diagonal=True]"
DRAWN = "fisher-rao-norm[diagonal=True,exact_rows=4,probes=60]"


class Tokens(nn.Module):
    """A network whose rows [batch, tokens] see those before them."""

    def __init__(self, flat: bool) -> None:
        super().__init__()
        self.embed, self.mix = nn.Embedding(7, 5), nn.Linear(5, 8)
        self.head, self.flat = nn.Linear(8, 3), flat

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.mix(self.embed(tokens).cumsum(1)).relu()
        scores = self.head(hidden)
        return scores.flatten(0, 1) if self.flat else scores


def tokens(flat: bool, batches=((2, 6), (3, 6))) -> fg.Objective:
    torch.manual_seed(0)
    data = []
    for shape in batches:
        labels = torch.randint(0, 3, shape)
        inputs = torch.randint(0, 7, shape)
        data.append((inputs, labels.flatten() if flat else labels))
    return fg.Objective(Tokens(flat).double(), data)


def both(objective: fg.Objective, seed: int = 0):
    report = fg.measure(objective, EXACT, DRAWN, seed=seed)
    return report[EXACT], report[DRAWN]


@pytest.mark.parametrize("flat", [False, True])
def test_it_is_unbiased_and_says_how_far_it_may_be_off(flat):
    objective = tokens(flat)
    exact, first = both(objective)
    assert exact.status is Status.EXACT
    assert first.status in (Status.ESTIMATED, Status.NOT_CONVERGED)
    drawn = [fg.measure(objective, DRAWN, seed=seed)[DRAWN] for seed in range(40)]
    misses = np.array([(one.value - exact.value) / one.uncertainty for one in drawn])
    assert np.mean(np.abs(misses) <= 2) >= 0.85
    spread = np.std([one.value for one in drawn]) / np.sqrt(len(drawn))
    assert abs(np.mean([one.value for one in drawn]) - exact.value) <= 4 * spread
    layers = {
        name: np.mean([one.details["layers"][name] for one in drawn])
        for name in exact.details["layers"]
    }
    assert layers == pytest.approx(exact.details["layers"], rel=0.15)


def test_rescaled_units_do_not_move_it():
    objective = tokens(False)
    twin = objective.model()
    with torch.no_grad():
        factors = torch.tensor([0.1, 10.0, 2.0, 0.5, 3.0, 1.0, 7.0, 0.2]).double()
        twin.mix.weight *= factors[:, None]
        twin.mix.bias *= factors
        twin.head.weight /= factors
    moved = fg.measure(objective.with_model(twin), DRAWN)[DRAWN]
    assert moved.value == pytest.approx(both(objective)[1].value, rel=1e-9)


def test_few_rows_are_differentiated_one_by_one():
    report = fg.measure(tokens(False), f"{EXACT[:-1]},exact_rows=6]", EXACT)
    assert [one.status for one in report.measurements.values()] == [Status.EXACT] * 2


def test_what_does_not_settle_is_not_called_an_estimate():
    few = "fisher-rao-norm[diagonal=True,exact_rows=1,probes=2]"
    found = fg.measure(tokens(False), few)[few]
    assert found.status is Status.NOT_CONVERGED
    assert "raise probes=" in found.message
