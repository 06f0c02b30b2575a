from __future__ import annotations

import pytest
import torch
from support.cases import (
    CASES,
    NETWORK_CASES,
    assert_close,
    known,
    known_network,
    random_vector,
)
from support.dense import dense_fisher

import flatgauge as fg
from flatgauge.errors import LossError, OptionError
from flatgauge.vectors import dot, ravel

CLASSIFICATION = ["cross-entropy", "normalized-cross-entropy"]


@pytest.mark.parametrize(
    "case", ["mlp", "lenet", "resnet", "gpt", "lstm", "tied-frozen"]
)
@pytest.mark.parametrize("loss", CLASSIFICATION)
@pytest.mark.parametrize("kind", ["empirical", "true"])
def test_products_match_the_dense_matrix(case, loss, kind):
    objective = CASES[case].objective(loss, count=4)
    vector = random_vector(objective)
    expected = dense_fisher(objective, kind) @ ravel(vector)
    assert_close(ravel(fg.Fisher(objective, kind) @ vector), expected, 1e-11)


def test_empirical_squared_error():
    objective = CASES["mlp"].objective("mse")
    vector = random_vector(objective)
    expected = dense_fisher(objective) @ ravel(vector)
    assert_close(ravel(fg.Fisher(objective) @ vector), expected)


@pytest.mark.parametrize("loss", ["cross-entropy", "mse"])
def test_the_true_fisher_is_gauss_newton(loss):
    objective = CASES["resnet"].objective(loss)
    vector = random_vector(objective)
    expected = fg.GaussNewton(objective) @ vector
    assert_close(fg.Fisher(objective, "true") @ vector, expected)


def test_batches_change_nothing():
    x, y = CASES["mlp"].data(20)
    model = CASES["mlp"].model()
    whole = fg.Objective(model, (x, y))
    parts = fg.Objective(model, (x, y), batch_size=8)
    vector = random_vector(whole)
    for kind in ("empirical", "true"):
        assert_close(fg.Fisher(parts, kind) @ vector, fg.Fisher(whole, kind) @ vector)


@pytest.mark.parametrize("loss", [*CLASSIFICATION, "mse"])
def test_sampling_is_unbiased(loss):
    objective = CASES["mlp"].objective(loss)
    vector = random_vector(objective)
    exact = float(dot(vector, fg.Fisher(objective, "true") @ vector))
    draws = torch.tensor(
        [
            float(dot(vector, fg.Fisher(objective, "true", samples=5, seed=s) @ vector))
            for s in range(60)
        ]
    )
    error = float(draws.std()) / 60**0.5
    assert abs(float(draws.mean()) - exact) < 5 * error


def test_sampling_does_not_depend_on_kept_graphs():
    x, y = CASES["mlp"].data(20)
    objective = fg.Objective(CASES["mlp"].model(), (x, y), batch_size=8)
    vector = random_vector(objective)
    kept = fg.Fisher(objective, "true", samples=2, seed=3)
    again = fg.Fisher(objective, "true", samples=2, seed=3, memory_budget=0)
    other = fg.Fisher(objective, "true", samples=2, seed=4)
    first = kept @ vector
    assert_close(kept @ vector, first)
    assert_close(again @ vector, first)
    assert float((ravel(other @ vector) - ravel(first)).norm()) > 0


@pytest.mark.parametrize("name", [n for n in NETWORK_CASES if n.endswith("/ce")])
def test_known_fisher_rao_norms(name):
    objective = known_network(name)
    norm = float(dot(objective.parameters, fg.Fisher(objective) @ objective.parameters))
    assert norm == pytest.approx(known(name, "fr_full"), rel=1e-10)
    diagonal = fg.Fisher(objective).to_dense().diagonal()
    weighted = float((ravel(objective.parameters).square() * diagonal).sum())
    assert weighted == pytest.approx(known(name, "fr_diag25"), rel=1e-10)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "other"}, "kind= is 'other': use 'empirical' or 'true'"),
        ({"samples": 3}, r"samples= draws targets for kind='true'"),
        ({"kind": "true", "samples": 0}, "at least 1"),
    ],
)
def test_options_that_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        fg.Fisher(CASES["mlp"].objective(), **options)


def test_a_callable_loss_is_refused():
    objective = CASES["mlp"].objective(lambda f, y: (f - y).square().mean())
    with pytest.raises(LossError, match=r"a loss per row.*use a named loss"):
        fg.Fisher(objective)
