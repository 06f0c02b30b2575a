"""CIFAR-10 of Rangamani et al.: the page with no result, some and all, and its words."""

from __future__ import annotations

import json

import pytest
import torch
from support.made_up_cifar import (
    CIFAR,
    EXPECTED,
    HOME,
    RUNS,
    as_in_the_paper,
    lost,
    network,
    parts,
    reversed_sides,
    stored,
)

from papers.completeness import (
    ABSENT,
    IN_PART,
    REFUTED,
    REPRODUCED,
    VERDICTS,
    verdict_on,
)
from papers.experiment import Context
from papers.rangamani2019 import (
    cause,
    cifar,
    cifar_cells,
    cifar_findings,
    cifar_table4,
)
from papers.rangamani2019.findings import CHECKS
from papers.rangamani2019.run import PAPER
from papers.runner import whole_page
from papers.store import plain

CIFAR_CHECKS = tuple(cifar_findings.CHECKS)


def page(results) -> str:
    return whole_page(PAPER, RUNS, results, HOME / "expected.json", quick=False)


def findings(results) -> dict[str, tuple[str, str]]:
    return {
        entry["check"]: verdict_on(entry, CHECKS, results)
        for entry in EXPECTED["completeness"]
        if entry.get("check") in CIFAR_CHECKS
    }


def test_made_up_networks_have_the_keys_of_real_ones():
    run = next(r for r in cifar.runs(quick=True) if "clean-alexnet-200" in r.name)
    settings = plain(run.settings) | {
        "measures": ["riemannian-spectral-norm[metric=layer]"]
    }
    settings["descent"]["epochs"] = 1
    with torch.random.fork_rng():
        found = plain(run.compute(Context(True, None, torch.device("cpu")), settings))
    (real,) = found["networks"]
    made = plain(as_in_the_paper(CIFAR[0]))
    assert set(found) == {"networks", "history"}
    assert set(made) == set(real) == set(lost(0))
    assert set(made["lines"]) == set(real["lines"])
    assert made["lines"]["axis"] == pytest.approx(real["lines"]["axis"])
    full = plain(CIFAR[0].settings)
    assert set(full) == set(settings)
    assert set(full["lines"]) == set(settings["lines"])


def test_without_any_result_nothing_looks_like_one(tmp_path):
    results = stored(tmp_path / "results", runs=[])
    assert all(found[0] == ABSENT for found in findings(results).values())
    assert all("not run yet" in words for _, words in findings(results).values())
    rows = [
        line for line in page(results).splitlines() if line.startswith("| CIFAR-10 /")
    ]
    assert len(rows) == 12
    for row in rows:
        *_, paper, authors, verdict, clean, _ = (
            cell.strip() for cell in row.split("|")
        )
        assert "±" in paper
        assert [authors, verdict, clean] == ["not run yet"] * 3
    assert "Table 4, CIFAR-10: not run yet." in page(results)
    assert "The networks of CIFAR-10: not run yet." in page(results)
    PAPER.figures(results, tmp_path / "figures")
    assert not list((tmp_path / "figures").glob("figure2-*"))


def test_with_some_results_the_rest_is_named(tmp_path):
    def make(run):
        one = as_in_the_paper(run)
        return (
            lost(one["seed"]) if run.name == "cifar10-authors-alexnet-2000-1" else one
        )

    some = [
        run
        for run in CIFAR
        if parts(run)[:2] == ("authors", "alexnet") and parts(run)[3] < 3
    ]
    some += [run for run in CIFAR if run.name == "cifar10-authors-vgg16-256-0"]
    results = stored(tmp_path / "results", make, some)
    text = page(results)
    assert f"State: 7 of {len(CIFAR)} networks run." in text
    (cell,) = cifar_cells.cells(results)
    assert [one["seed"] for one in cell.small] == [0, 2]
    assert "2 of 8 networks, 1 did not train" in text
    assert "| VGG16 type, the authors' code, 256 | 1 of 3 | 0 |" in text
    assert "| VGG16 type, the authors' code, 2000 | not run yet |" in text
    assert "(1 of 3 networks) | one network only |" in text
    found = findings(results)
    assert {verdict for verdict, _ in found.values()} == {IN_PART}
    for check in ("cifar order", "cifar size", "cifar accuracy", "figure 2"):
        assert "VGG16 type: its pairs are not run yet" in found[check][1]
    assert "2 of 2 (AlexNet type)" in found["cifar order"][1]
    assert "4 were made by two networks or more" in found["cifar values"][1]
    PAPER.figures(results, tmp_path / "figures")
    drawn = [path.name for path in (tmp_path / "figures").glob("figure2-*")]
    assert drawn == ["figure2-authors-alexnet.svg"]
    assert text.count("](figures/figure2-") == 1


def test_with_all_results_the_verdicts_follow(tmp_path):
    results = stored(tmp_path / "results")
    text = page(results)
    assert "State: all run." in text
    found = findings(results)
    assert {verdict for verdict, _ in found.values()} == {REPRODUCED}
    assert "8 of 8 (AlexNet type), 3 of 3 (VGG16 type)" in found["cifar order"][1]
    assert "of the 8 printed numbers 8 were made" in found["cifar values"][1]
    assert "not run yet" not in text.partition("## Table 4, CIFAR-10")[2]
    PAPER.figures(results, tmp_path / "figures")
    for path in (tmp_path / "figures").glob("*.svg"):
        assert path.stat().st_size < 200_000
        assert f"](figures/{path.name})" in text
    assert len(list((tmp_path / "figures").glob("figure2-*.svg"))) == 4


def test_reversed_numbers_reverse_the_words(tmp_path):
    back = stored(tmp_path, reversed_sides, mnist=False)
    found = findings(back)
    for check in ("cifar order", "cifar size", "cifar accuracy", "figure 2"):
        assert found[check][0] == REFUTED, check
    assert "0 of 8 (AlexNet type), 0 of 3 (VGG16 type)" in found["cifar order"][1]


def test_a_verdict_on_a_cell():
    def judged(values, points=False):
        found = cifar_table4.Ours(len(values), values, 0, 8)
        return cifar_table4.verdict([100.0, 1.0], found, points)

    assert judged([]) == "not run yet"
    assert judged([100.0]) == "one network only"
    assert judged([101.0, 101.0]) == "agrees"
    assert judged([104.0, 104.0], points=True) == "differs by +4.0 points"
    assert judged([94.0, 94.0], points=True) == "differs by -6.0 points"
    assert judged([200.0, 200.0]) == "near: 2 times the paper's"
    assert judged([400.0, 400.0]) == "differs: 4 times the paper's"
    gone = cifar_table4.Ours(2, [], 2, 8)
    assert cifar_table4.verdict([100.0, 1.0], gone, points=False) == "no value"
    assert gone.text == "– (0 of 8 networks, 2 did not train)"


def test_networks_that_stay_at_chance_are_no_minima(tmp_path):
    def make(run):
        one = as_in_the_paper(run)
        return one | {"train_accuracy": 0.1} if "authors-vgg16" in run.name else one

    results = stored(tmp_path, make, mnist=False)
    made = {(cell.protocol, cell.network) for cell in cifar_cells.cells(results)}
    assert ("authors", "vgg16") not in made
    assert "VGG16 type: not run yet" not in findings(results)["cifar order"][1]
    assert (
        "VGG16 type: no pair of trained networks" in findings(results)["cifar order"][1]
    )


def test_plain_words_give_way_to_cifar(tmp_path):
    """They speak against the paper; a large gap at equal losses takes them away."""
    assert cause.in_plain_words(stored(tmp_path / "none", runs=[])) != ""

    def sharp(run):
        protocol, _, large, seed = parts(run)
        if protocol == "clean":
            return network(seed, 1e5 if large else 1e3, 1e-3, reached=True)
        return as_in_the_paper(run)

    assert cause.in_plain_words(stored(tmp_path / "all", sharp)) == ""


def test_committed_results_have_a_verdict_for_each_check():
    from papers.store import load

    results = load(HOME / "results", RUNS, quick=False)
    for verdict, words in findings(results).values():
        assert verdict in VERDICTS
        assert words
    json.dumps(findings(results))
