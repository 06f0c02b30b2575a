"""Networks with random labels: what they are trained on, and what is said of them."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest
import torch
from torch import nn

from papers.completeness import ABSENT, IN_PART, OPEN, REFUTED, REPRODUCED
from papers.experiment import Context, Results
from papers.store import plain
from papers.tsuzuku2019 import (
    random_label_findings,
    random_label_sections,
    random_labels,
    scatter,
    twin_sections,
    wide,
)
from papers.tsuzuku2019.generalization import order, value
from papers.wide_resnet import WideResNet, folded, recalibrated

LABELS = torch.arange(5000) % 10


@pytest.mark.parametrize("ratio", [0.0, 0.3, 1.0])
def test_a_share_of_the_labels_is_drawn_anew(ratio):
    found = random_labels.randomized(LABELS, ratio, seed=3)
    changed = (found != LABELS).double().mean()
    # One draw in ten gives the label that was there.
    assert changed == pytest.approx(0.9 * ratio, abs=0.02)
    assert torch.equal(found, random_labels.randomized(LABELS, ratio, seed=3))


def test_a_larger_share_holds_a_smaller_one():
    some, more = (random_labels.randomized(LABELS, r, seed=1) for r in (0.2, 0.7))
    changed = some != LABELS
    assert torch.equal(some[changed], more[changed])
    assert not torch.equal(more, random_labels.randomized(LABELS, 0.7, seed=2))


def network(ratio: float, seed: int, **more) -> dict:
    """Sharper by the gap, and by another order that is the seed's."""
    measures = {
        "normalized-sharpness": {"value": 1 + ratio, "status": "EXACT"},
        "hessian-trace": {"value": float((seed * 7 + 3) % 5), "status": "EXACT"},
        "hessian-spectral-norm": {"value": -ratio, "status": "NOT_CONVERGED"},
        "volume-flatness": {"value": -ratio, "status": "ESTIMATED"},
    }
    return {
        "ratio": ratio,
        "epochs": 3,
        "fitted": ratio < 0.9,
        "train_loss": 0.01,
        "train_accuracy": 0.99,
        "test_loss": 1.0,
        "test_accuracy": 0.99 - ratio,
        "gap": ratio,
        "measures": measures,
        **more,
    }


NETWORKS = [network(r / 10, seed) for seed in range(3) for r in range(11)]


def stored() -> Results:
    records = {
        random_labels.name_of("mnist-lenet", seed): {
            "result": {"networks": NETWORKS[11 * seed : 11 * (seed + 1)]},
            "times": {"seconds": 1.0, "of": {"training": 22.0, "hessian-trace": 1.1}},
            "provenance": {"quick": False},
        }
        for seed in range(3)
    }
    return Results(records)


def test_the_order_of_networks():
    found = order(NETWORKS)
    assert found is not None
    ours, trace = (
        found.found[name] for name in ("normalized-sharpness", "hessian-trace")
    )
    assert ours["pearson"].value == pytest.approx(1.0)
    assert abs(trace["pearson"].value) < 0.2
    assert found.place("pearson", "normalized-sharpness").place == 1
    assert not found.place("pearson", "hessian-trace").tied
    # What cannot be trusted is left out.
    assert found.found["hessian-spectral-norm"]["kendall"].value is None
    assert order(NETWORKS[:4]) is None


def test_flat_volumes_count_the_other_way_round():
    assert value(NETWORKS[3], "volume-flatness") == pytest.approx(0.3)
    assert value(NETWORKS[3], "hessian-spectral-norm") is None


def test_the_section_names_what_fits_and_what_was_not_run():
    text = random_label_sections.random_labels(stored())
    assert "**All 33 networks**" in text
    assert "**The 27 that fit**" in text
    assert text.count("Not run yet.") == 3
    assert "| 0.9 | 0 of 3 |" in text
    assert "| training | 2.00 |" in text
    said = random_label_sections.verdict(stored())
    assert "the 27 networks of 33 that fit: Pearson 1.000" in said


def all_pairs(sharpness, trace) -> Results:
    """Every pair with two networks a ratio whose measures are functions of it."""
    names = [random_labels.name_of(pair, 0) for pair in random_labels.PAIRS]
    measures = {"normalized-sharpness": sharpness, "hessian-trace": trace}
    networks = []
    for one in NETWORKS[:22]:
        found = {
            name: {"value": of(one["gap"]), "status": "EXACT"}
            for name, of in measures.items()
        }
        networks.append({**one, "fitted": True, "measures": found})
    return Results(
        {n: {"result": {"networks": networks}} for n in [*names, wide.name_of(0.0, 0)]}
    )


def verdicts(results: Results) -> list[str]:
    checks = random_label_findings.CHECKS.values()
    return [check.find(results)[0] for check in checks]


def test_findings_follow_the_networks():
    assert verdicts(Results({})) == [ABSENT] * 3
    assert verdicts(stored()) == [IN_PART] * 3
    said = [check.find(stored())[1] for check in random_label_findings.CHECKS.values()]
    assert (
        "1.000 [1.000, 1.000] (LeNet on MNIST); WRN-16-4 on CIFAR-10: not run"
        in said[0]
    )
    assert "less than (17) in 1 of 1 pairs and more in 0" in said[1]
    assert "LeNet on MNIST: 33, 27 of which fit" in said[2]


def test_findings_turn_with_the_numbers():
    def straight(gap: float) -> float:
        return 1 + gap

    def bent(gap: float) -> float:
        return (1 + gap - 0.5) ** 2 if gap > 0.2 else 1.5

    assert verdicts(all_pairs(straight, bent)) == [REPRODUCED, REPRODUCED, IN_PART]
    assert verdicts(all_pairs(bent, straight)) == [OPEN, REFUTED, IN_PART]


def test_wide_intervals_bear_out_nothing():
    def noisy(gap: float) -> float:
        return (37 * (10 * gap) % 11) / 11

    found = verdicts(all_pairs(noisy, noisy))
    assert found[0] in (OPEN, IN_PART)
    # The same numbers: neither is below the other.
    assert found[1] == IN_PART
    few = all_pairs(noisy, noisy)
    for record in few.records.values():
        record["result"] = {
            "networks": [{**o, "fitted": False} for o in record["result"]["networks"]]
        }
    said = random_label_findings.normalized(few)
    assert said == (ABSENT, "too few networks fit their labels")


def test_figures_have_a_point_for_each_network(tmp_path):
    scatter.figures(stored(), tmp_path)
    for name in ("figure3.svg", "figure4.svg"):
        assert ElementTree.parse(tmp_path / name)
    scatter.figures(Results({}), tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_run_trains_and_measures():
    run = random_labels.runs(quick=True)[0]
    settings = {**run.settings, "epochs": 25, "measured_samples": 100}
    settings["measures"] = ["normalized-sharpness", "hessian-trace"]
    found = run.compute(Context(True, None, torch.device("cpu")), plain(settings))
    clean, _, noise = found["networks"]
    assert clean["train_accuracy"] > 0.95
    assert noise["train_accuracy"] < 0.5
    assert clean["gap"] == clean["train_accuracy"] - clean["test_accuracy"]
    for one in found["networks"]:
        assert {m["status"] for m in one["measures"].values()} == {"EXACT"}
    assert found["times"]["of"]["training"] > 0


def with_twins() -> Results:
    """Folding changes nothing; rescaling multiplies the trace by the network's number."""
    networks = []
    for number in range(8):
        one = network(number / 10, 0)
        measures = {"normalized-sharpness": 1.0, "hessian-trace": number + 1.0}
        moved = one["measures"] | {
            name: {"value": factor * one["measures"][name]["value"], "status": "EXACT"}
            for name, factor in measures.items()
        }
        one["twins"] = {
            "folded": {"outputs": 1e-7, "measures": one["measures"]},
            "rescaled": {"outputs": 2e-7, "measures": moved},
            "statistics": {"outputs": 0.25, "measures": moved},
        }
        networks.append(one)
    name = "random-labels-cifar10-wrn-0-0"
    record = {
        "result": {"networks": networks},
        "times": {"seconds": 1.0, "of": {}},
        "provenance": {"quick": True},
    }
    return Results({name: record})


def test_twins_show_which_measures_tell_of_the_function():
    text = twin_sections.twins(with_twins())
    assert "outputs change by 2e-07 at most" in text
    assert "| `normalized-sharpness` | 1 (1 to 1) | 1 (1 to 1) |" in text
    assert "| `hessian-trace` | 1 (1 to 1) | 3.76 (1 to 8) |" in text
    assert "| `normalized-sharpness` | 1.000 [1.000, 1.000] | 1.000" in text
    assert "Not run yet." in twin_sections.twins(stored())
    quick = random_label_sections.random_labels(with_twins())
    assert "WRN-16-4 on CIFAR-10" in quick
    assert "Prices" not in quick


def test_a_wide_network_and_its_twins():
    torch.manual_seed(0)
    model, pixels = WideResNet(10, 2).eval(), torch.randn(6, 3, 8, 8)
    with torch.no_grad():
        for one in model.modules():
            if isinstance(one, nn.BatchNorm2d):
                one.running_var.uniform_(0.5, 2.0)
                one.running_mean.normal_()
                one.weight.uniform_(0.5, 2.0)
        base, flat = model(pixels), folded(model)
        torch.testing.assert_close(flat(pixels), base, rtol=1e-4, atol=1e-5)
        norms = [m for m in flat.modules() if isinstance(m, nn.BatchNorm2d)]
        # The first norms of two blocks, and the last one, follow sums.
        assert len(norms) == 3
        anew = recalibrated(model, pixels, batch=3)
        assert not torch.allclose(anew(pixels), base)
        mean = anew.blocks[0].norm1.running_mean
        expected = model.stem(pixels).mean((0, 2, 3))
        torch.testing.assert_close(mean, expected, rtol=1e-4, atol=1e-5)
    assert sum(p.numel() for p in WideResNet(16, 4).parameters()) == 2_748_890


@pytest.mark.slow
def test_a_run_with_twins():
    run = wide.runs(quick=True)[0]
    settings = {**run.settings, "measured_samples": 60}
    with torch.random.fork_rng():
        found = run.compute(Context(True, None, torch.device("cpu")), plain(settings))
    (one,) = found["networks"]
    for twin in ("folded", "rescaled"):
        assert one["twins"][twin]["outputs"] < 1e-4
        own, other = (
            parts["measures"]["normalized-sharpness"]["value"]
            for parts in (one, one["twins"][twin])
        )
        assert other == pytest.approx(own, rel=1e-3)
