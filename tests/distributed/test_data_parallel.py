"""Numbers are the same by one process and by several, each with some of the batches."""

from __future__ import annotations

import pytest
import torch
from support import shared_work
from support.processes import Processes, assert_same

OTHERS = (
    "normalized-sharpness-direct",
    "epsilon-sharpness",
    "riemannian-sharpness",
    "volume-flatness",
    "pac-bayes-bound",
)


def check(processes, name, how, requests=(), **options):
    alone = shared_work.measured(0, 0, name, how, requests, options)
    together = processes(shared_work.measured, name, how, requests, options)
    assert_same(alone, together)


@pytest.mark.parametrize("name", ["mlp", "lenet", "resnet", "own loss", "experts"])
@pytest.mark.parametrize("how", ["uneven", "none first"])
def test_the_default_set(pair, name, how):
    check(pair, name, how)


def test_the_default_set_of_a_language_model(pair):
    check(pair, "gpt2", "even")


def test_with_a_budget(pair):
    check(pair, "mlp", "uneven", ("hessian-trace", "fisher-rao-norm"), budget="60s")


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
@pytest.mark.parametrize("name", ["mlp", "resnet"])
def test_other_measures(pair, name):
    check(pair, name, "uneven", OTHERS)


def test_everything_else(pair):
    alone = shared_work.everything(0, 0, "mlp", "even")
    for one in pair(shared_work.everything, "mlp", "uneven"):
        for key in ("samples", "audit", "dimension"):
            assert one[key] == alone[key]
        for key in ("value", "twin", "data uncertainty"):
            assert one[key] == pytest.approx(alone[key], rel=1e-10)
        assert one["gradient"].keys() == alone["gradient"].keys()
        for found, known in (
            (one["dense"], alone["dense"]),
            (one["fisher"], alone["fisher"]),
            *((one["drawn"][n], alone["drawn"][n]) for n in one["drawn"]),
            *((one["gradient"][n], alone["gradient"][n]) for n in one["gradient"]),
        ):
            assert torch.allclose(torch.tensor(found), torch.tensor(known), atol=1e-12)


def test_processes_make_room_together(pair):
    assert all(all(one) for one in pair(shared_work.made_room))


def test_the_report_is_the_same_on_every_rank_and_says_so(pair):
    first, second = pair(shared_work.provenance)
    assert first.to_dict() == second.to_dict()
    assert first.provenance.processes == 2
    assert first.provenance.samples == 19
    assert first.provenance.batches == 5


def test_a_model_under_ddp_has_the_first_process_buffers(pair):
    model, data, _ = shared_work.problem("resnet")
    known = shared_work.fg.Objective(model, data).value()
    for one in pair(shared_work.wrapped):
        assert one == pytest.approx(known, rel=1e-12)


def test_padding_is_named(pair):
    first, _ = found = pair(shared_work.padded)
    assert first
    for said in found:
        assert said == [] or "1 samples beyond the 19 of the data" in said[0]
