"""The uncertainty of the data: its factor, its units, and that nothing else changes."""

from __future__ import annotations

import json
import math

import pytest
import torch
from support.cases import CASES
from support.untouched import global_state
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import flatgauge as fg
from flatgauge.errors import DataError, OptionError
from flatgauge.resampling import Splits, data_uncertainty

TRACE = "hessian-trace"


def linear(x: torch.Tensor, **keywords) -> fg.Objective:
    """A linear model: its trace is the mean of 2 |x|² over independent samples."""
    model = nn.Linear(x.shape[1], 1, bias=False).double()
    keywords.setdefault("derivatives", "as given")
    return fg.Objective(model, (x, torch.zeros(len(x), 1)), "mse", **keywords)


@pytest.mark.slow
@pytest.mark.parametrize("count", [16, 17])
def test_the_mean_square_is_the_variance_over_draws_of_the_data(count):
    random = torch.Generator().manual_seed(0)
    contributions = 2 * torch.randn(4000, 3, generator=random).double().square().sum(1)
    truth = float(contributions.var()) / count
    squares, values = [], []
    for _ in range(60):
        x = torch.randn(count, 3, generator=random).double()
        found = fg.measure(linear(x), TRACE, resamples=2)[TRACE]
        squares.append(found.data_uncertainty**2)
        values.append(found.value)
    # Of 60 sets of data with two splits each, the mean square is within a fifth or so.
    assert sum(squares) / 60 == pytest.approx(truth, rel=0.5)
    assert torch.tensor(values).var() == pytest.approx(truth, rel=0.5)


@pytest.mark.slow
def test_over_all_splits_it_is_the_classical_standard_error():
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(1)).double()
    each = 2 * x.square().sum(1)
    objective = linear(x)
    splits = Splits(objective, 400, seed=0)
    squares = []
    for split in splits:
        first, second = (fg.measure(half, TRACE)[TRACE].value for half in split.halves)
        squares.append(split.weight * (first - second) ** 2)
    found = data_uncertainty(squares)
    assert found == pytest.approx(float(each.std()) / math.sqrt(6), rel=0.1)


def test_two_samples_have_one_split():
    x = torch.tensor([[1.0, 0.0], [0.0, 3.0]]).double()
    found = fg.measure(linear(x), TRACE, resamples=3)[TRACE]
    assert found.value == pytest.approx(10.0)
    assert found.data_uncertainty == pytest.approx((18 - 2) / 2)
    assert found.details["resamples"] == {"splits": 3, "of": "samples"}
    assert found.shown == "10 ± 8 (data)"


@pytest.mark.parametrize("batch_size", [None, 1, 4, 7])
def test_batches_do_not_matter(batch_size):
    x = torch.randn(13, 3, generator=torch.Generator().manual_seed(1)).double()
    found = fg.measure(linear(x, batch_size=batch_size), TRACE, resamples=3)[TRACE]
    whole = fg.measure(linear(x), TRACE, resamples=3)[TRACE]
    assert found.data_uncertainty == pytest.approx(whole.data_uncertainty, rel=1e-12)


def test_a_loader_is_read_as_it_is():
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(1)).double()
    loader = DataLoader(TensorDataset(x, torch.zeros(12, 1).double()), batch_size=5)
    model = nn.Linear(3, 1, bias=False).double()
    before = global_state()
    found = fg.measure(fg.Objective(model, loader, "mse"), TRACE, resamples=2)[TRACE]
    assert global_state() == before
    whole = fg.measure(linear(x), TRACE, resamples=2)[TRACE]
    assert found.data_uncertainty == pytest.approx(whole.data_uncertainty, rel=1e-12)


def test_halves_keep_their_data_under_other_losses_and_points():
    objective = CASES["mlp"].objective()
    (split,) = Splits(objective, 1, seed=0)
    first, second = split.halves
    assert first.sample_count + second.sample_count == objective.sample_count
    for change in (
        lambda one: one.with_loss("normalized-cross-entropy"),
        lambda one: one.at({n: 2 * t for n, t in one.parameters.items()}),
    ):
        halves = [change(half) for half in split.halves]
        total = sum(half.value() * half.sample_count for half in halves)
        mean = total / objective.sample_count
        assert mean == pytest.approx(change(objective).value(), rel=1e-9)
        assert halves[0].value() != halves[1].value()


def test_every_measure_of_the_default_set_has_one():
    report = fg.measure(CASES["gelu"].objective(), resamples=2)
    for request, one in report.measurements.items():
        assert one.data_uncertainty is not None, request
        assert (one.data_uncertainty == 0) is (request == "spectral-norm-product")
        assert one.details["resamples"]["splits"] == 2


def coupled(batches: int) -> fg.Objective:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 3)
    )
    data = [(torch.randn(8, 3), torch.randint(0, 3, (8,))) for _ in range(batches)]
    return fg.Objective(model, data, mode="train", dtype=torch.float64)


def test_coupled_samples_stay_together():
    name = "hessian-spectral-norm"
    found = fg.measure(coupled(4), name, resamples=2)[name]
    assert found.details["resamples"] == {"splits": 2, "of": "batches"}
    assert found.data_uncertainty > 0


def test_one_batch_of_coupled_samples_cannot_be_halved():
    name = "hessian-spectral-norm"
    found = fg.measure(coupled(1), name, resamples=2)[name]
    assert found.data_uncertainty is None
    assert found.value is not None
    said = found.details["resamples"]["reason"]
    assert "cannot be halved, since its samples influence each other" in said


def test_one_sample_cannot_be_halved():
    with pytest.raises(DataError, match="since it has one sample"):
        Splits(linear(torch.ones(1, 2).double()), 1, 0)


def test_what_does_not_apply_has_none():
    custom = fg.Objective(
        nn.Linear(2, 1).double(),
        (torch.randn(6, 2).double(), torch.randn(6, 1)),
        lambda out, target: (out - target).square().mean(),
    )
    found = fg.measure(custom, "fisher-rao-norm", resamples=1)["fisher-rao-norm"]
    assert found.value is None
    assert found.data_uncertainty is None


@pytest.mark.parametrize("resamples", [-1, 1.5, True, "many"])
def test_other_numbers_of_splits_are_refused(resamples):
    with pytest.raises((OptionError, TypeError), match="resamples"):
        fg.measure(linear(torch.ones(4, 2).double()), TRACE, resamples=resamples)


def test_it_is_kept_in_files_and_old_files_open(tmp_path):
    x = torch.randn(8, 3, generator=torch.Generator().manual_seed(1)).double()
    report = fg.measure(linear(x), TRACE, resamples=2)
    report.to_json(tmp_path / "report.json")
    again = fg.Report.from_json(tmp_path / "report.json")
    assert again[TRACE].data_uncertainty == report[TRACE].data_uncertainty
    assert again.rows()[0]["data_uncertainty"] == report[TRACE].data_uncertainty
    report.to_html(tmp_path / "report.html")
    assert " data</span>" in (tmp_path / "report.html").read_text()
    plain = json.loads((tmp_path / "report.json").read_text())
    del plain["measurements"][TRACE]["data_uncertainty"]
    old = fg.Report.from_dict(plain)
    assert old[TRACE].data_uncertainty is None
    old.to_html(tmp_path / "old.html")
    assert " data</span>" not in (tmp_path / "old.html").read_text()
