"""The discussion of Rangamani et al.: its sentences follow the numbers."""

from __future__ import annotations

import math

import pytest
from support.made_up_cifar import CIFAR, as_in_the_paper, parts, reversed_sides, stored

from papers.rangamani2019 import discussion, equal_loss, gaps


def test_without_any_network_of_cifar(tmp_path):
    results = stored(tmp_path, runs=[])
    assert [cell.network for cell in equal_loss.alike(results)] == ["fc", "lenet"]
    said = discussion.accounts(results)
    for network in ("AlexNet", "VGG16"):
        assert f"The batch size alone ({network} type, CIFAR-10): not run yet." in said
    assert "CIFAR-10: not run yet." in discussion.verdict(results)
    rows = gaps.gaps_table(results, dict.fromkeys(PRINTED, 1.0)).splitlines()
    assert sum("| not run yet |" in row for row in rows) == 4
    assert "VGG16 type, batch size alone: not run yet" in equal_loss.left_out(results)


def test_without_any_result(tmp_path):
    results = stored(tmp_path, runs=[], mnist=False)
    assert discussion.verdict(results).startswith(
        "At the same train loss: not run yet."
    )
    assert gaps.gaps(results) == {}


PRINTED = ("fc", "lenet", "alexnet", "vgg16")


def test_with_all_results(tmp_path):
    said = equal_loss.sentences(equal_loss.alike(stored(tmp_path)))[0]
    assert "21 pairs" in said
    assert "are sharper than the small ones by the paper's measure" in said


def test_reversed_numbers_reverse_the_sentences(tmp_path):
    there, back = (
        stored(tmp_path / name, make, mnist=False)
        for name, make in (("there", as_in_the_paper), ("back", reversed_sides))
    )
    words = [equal_loss.sentences(equal_loss.alike(one))[0] for one in (there, back)]
    assert "are sharper than" in words[0]
    assert "are flatter than" in words[1]
    alone = [
        next(
            s for s in discussion.accounts(one) if s.startswith("The batch size alone")
        )
        for one in (there, back)
    ]
    assert "are sharper, by 1.98" in alone[0]
    assert "are flatter, by 1.98" in alone[1]
    one, other = (gaps.gaps(results)["authors", "vgg16"] for results in (there, back))
    assert one.gap[0] == pytest.approx(-other.gap[0])
    assert one.left == pytest.approx(-other.left)


def test_pairs_of_unlike_losses_are_left_out(tmp_path):
    def make(run):
        one = as_in_the_paper(run)
        protocol, shape, large, seed = parts(run)
        if (protocol, shape, large) == ("clean", "alexnet", True):
            if seed == 2:
                one["train_loss"] /= 10
            if seed == 5:
                one["reached"] = False
        return one

    results = stored(tmp_path, make, mnist=False)
    kept = {
        cell.network: [n["seed"] for n in cell.small]
        for cell in equal_loss.alike(results)
    }
    assert kept == {"alexnet": [0, 1, 3, 4, 6, 7], "vgg16": [0, 1, 2]}
    said = equal_loss.left_out(results)
    assert "AlexNet type, batch size alone: 2 of 8 pairs are left out" in said
    assert "fully connected, as printed: not run yet" in said


def test_the_account_adds_up(tmp_path):
    results = stored(tmp_path, mnist=False)
    authors = gaps.gaps(results)["authors", "vgg16"]
    printed = math.log10(25395.22 / 68.68)
    assert authors.gap[0] == pytest.approx(printed, abs=0.01)
    assert authors.loss[0] == pytest.approx(1, abs=0.01)
    assert authors.left == pytest.approx(authors.gap[0] - authors.loss[0])
    assert authors.others == {
        "learning rate": (1e-4, 1e-3),
        "momentum": (0.9, 0.99),
        "epochs to half the rate": (50, None),
        "epochs": (90, 300),
    }
    clean = gaps.gaps(results)["clean", "vgg16"]
    assert gaps.others_text(clean) == "nothing"
    said = " ".join(discussion.accounts(results))
    rest = f"{authors.left - clean.left:.2f}"
    assert f"and {rest} with what else the authors change" in said
    assert f"epochs to half the rate ({50} and never)" in said


def test_few_pairs_are_not_told_apart(tmp_path):
    some = [run for run in CIFAR if parts(run)[:2] == ("clean", "vgg16")]
    results = stored(tmp_path, runs=some, mnist=False)
    made = equal_loss.verdicts(equal_loss.alike(results))
    assert {(one.pairs, one.p, one.word) for one in made} == {
        (3, 0.25, equal_loss.OPEN)
    }
    said = equal_loss.sentences(equal_loss.alike(results))
    assert "cannot be told from the small ones" in said[0]
    assert (
        f"values of none and the smaller ones of none; {len(made)} do not tell"
        in said[1]
    )


def test_what_is_left_of_a_measure_once_the_loss_is_divided_out(tmp_path):
    results = stored(tmp_path, mnist=False)
    cell = equal_loss.alike(results)[0]
    found = equal_loss.over_loss(cell, equal_loss.MEASURES[0])
    assert found.ratio == pytest.approx(cell.compare_quotients().ratio)
    assert found.ratio == pytest.approx(2)
