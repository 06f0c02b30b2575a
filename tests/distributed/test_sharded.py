"""Models that FSDP2 shards have the numbers of whole ones."""

from __future__ import annotations

import pytest
import torch
from support import shared_work
from support.processes import Processes, assert_same

import flatgauge as fg
from flatgauge import vectors
from flatgauge.requests import DEFAULT

# They need the whole gradient of every sample.
NOT_ON_SHARDS = "fisher-rao-norm[diagonal=True]"


def check(processes, name, how, fits=True, requests=()):
    alone = shared_work.measured(0, 0, name, how, requests, {})
    together = processes(shared_work.measured_on_shards, name, how, fits, requests)
    assert_same(alone, together)


@pytest.mark.parametrize(
    ("name", "how"),
    [
        ("mlp", "none first"),
        ("lenet", "uneven"),
        ("resnet", "none first"),
        ("own loss", "even"),
    ],
)
def test_the_default_set(pair, name, how):
    check(pair, name, how)


def test_the_default_set_of_a_language_model(pair):
    check(pair, "gpt2", "even")


@pytest.mark.slow
def test_what_needs_no_whole_copy(pair):
    requests = (
        "hessian-trace[max_products=12]",
        "hessian-spectral-norm[tol=0.1]",
        "matrix-normalized-sharpness[probes=3]",
        "normalized-sharpness[probes=10,tol=1e-3]",
        "fisher-rao-norm",
        "riemannian-spectral-norm[metric=layer,tol=0.1]",
        "spectral-norm-product",
    )
    check(pair, "wider gpt2", "even", fits=False, requests=requests)


@pytest.mark.slow
def test_the_default_set_without_a_whole_copy(pair):
    requests = tuple(one for one in DEFAULT if one != NOT_ON_SHARDS)
    check(pair, "wider gpt2", "even", fits=False, requests=requests)


def test_what_needs_one_says_so(pair):
    for one in pair(
        shared_work.measured_on_shards, "wider gpt2", "even", False, (NOT_ON_SHARDS,)
    ):
        value, _, status, message = one[NOT_ON_SHARDS]
        assert (value, status) == (None, "FAILED")
        assert "does not fit in each process: raise memory=" in message


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 4])
def test_other_numbers_of_processes(tmp_path, count):
    processes = Processes(count, tmp_path)
    try:
        for name in shared_work.SMALL:
            check(processes, name, "uneven")
    finally:
        processes.close()


@pytest.mark.slow
def test_other_measures(pair):
    others = ("epsilon-sharpness", "pac-bayes-bound", "riemannian-sharpness")
    check(pair, "mlp", "uneven", requests=others)


def test_named_vectors(pair):
    model, data, _ = shared_work.problem("mlp")
    objective = fg.Objective(model, data)
    hessian = fg.Hessian(objective)
    drawn = vectors.gaussian(objective.parameters, vectors.generator(3))
    signs = vectors.rademacher(objective.parameters, vectors.generator(3))
    image = hessian @ drawn
    moved = objective.at(vectors.add(objective.parameters, drawn, 0.1))
    for one in pair(shared_work.sharded_vectors):
        assert one["back"]
        for name in drawn:
            assert torch.allclose(one["drawn"][name], drawn[name], rtol=1e-12)
            assert torch.equal(one["signs"][name], signs[name])
            for key in ("product", "product with whole"):
                assert torch.allclose(one[key][name], image[name], atol=1e-13)
        assert one["norm"] == pytest.approx(float(vectors.norm(drawn)), rel=1e-12)
        assert one["dot"] == pytest.approx(float(vectors.dot(drawn, image)), rel=1e-12)
        assert one["moved"] == pytest.approx(moved.value(), rel=1e-12)
        assert torch.allclose(one["model"], model(data[0][0]), rtol=1e-12)
        top = fg.top_eigenvalues(objective, k=3, tol=1e-8).values
        assert one["top"] == pytest.approx(top, rel=1e-10)


@pytest.mark.parametrize("name", shared_work.ODD)
def test_unusual_uses_of_weights(pair, name):
    alone = shared_work.odd_model(0, 0, name)
    for one in pair(shared_work.odd_model, name):
        for key, vector in alone.items():
            for part, tensor in vector.items():
                assert torch.allclose(one[key][part], tensor, atol=1e-12), (key, part)


def test_sums_over_one_process_are_refused(pair):
    for one in pair.outcomes(shared_work.reduced_piece):
        assert (one.kind, one.text[:5]) == ("TypeError", "'sum'")


def test_training_goes_on(pair):
    for before, after in pair(shared_work.trains_on):
        assert after < before


@pytest.mark.parametrize(
    ("what", "kind", "words"),
    [
        ("tensor parallel", "ModelError", "apply fully_shard alone"),
        ("alone", "ModelError", "sharded over 2 processes, but 1 measure"),
        ("checkpoint", "OptionError", "checkpoint=True is not for sharded models"),
        ("uneven", "DataError", "the processes have 1, 4 batches"),
        ("dense", "OptionError", "build the operator from objective.whole()"),
        ("route", "OptionError", "needs whole parameters"),
        ("whole", "OutOfMemoryError", "does not fit in each process"),
        ("after a forward", "ModelError", "call its reshard() first"),
        ("other vectors", "OptionError", "is not the same on rank 1"),
    ],
)
def test_refusals(pair, what, kind, words):
    for one in pair.outcomes(shared_work.refused_on_shards, what):
        assert one.kind == kind
        assert words in one.text


def test_an_error_of_one_process_is_raised_on_all(pair):
    for status, message in pair(shared_work.failing_on_shards):
        assert status in ("FAILED", "NOT_APPLICABLE")
        assert "rank 1" in message
        assert "a cosmic ray" in message
    # The group is as it was.
    check(pair, "mlp", "even", requests=("hessian-trace",))
