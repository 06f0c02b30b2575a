"""Rangamani et al.: the statistics by hand, the tables' limits, and the page with gaps."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch

import flatgauge as fg
from flatgauge.requests import parse_value
from papers.experiment import Context, Results
from papers.rangamani2019 import cause, comparison, invariance, networks, simulations
from papers.rangamani2019.minima import (
    LAYERS,
    MEASURES,
    NODES,
    NOTHING,
    cells,
    log_quotient,
    logarithm,
)
from papers.rangamani2019.run import PAPER
from papers.rangamani2019.table4 import name_of
from papers.runner import ROOT
from papers.store import load, plain

HOME = ROOT / "rangamani2019"
EXPECTED = json.loads((HOME / "expected.json").read_text(encoding="utf-8"))
QUICK = Context(True, None, torch.device("cpu"))
NORM = MEASURES[0]


@pytest.fixture(scope="module")
def stored() -> Results:
    return load(HOME / "results", PAPER.runs(False), quick=False)


def network(seed: int, norm: float | None, loss: float, **changes: Any) -> dict:
    """A stored network whose measures are all alike."""
    alike = {"value": norm, "status": "CONVERGED", "dimension": 100}
    values = {m.request: dict(alike) for m in MEASURES}
    return {
        "seed": seed,
        "epochs": 10,
        "reached": None,
        "train_loss": loss,
        "train_accuracy": 1.0,
        "test_loss": 0.1,
        "test_accuracy": 0.9,
        "measures": values,
        "stored_by_authors": 0.5 * (norm or 0.0),
        **changes,
    }


def made(protocol: str, shape: str, size: int, found: list[dict]) -> tuple[str, dict]:
    name = name_of(protocol, shape, size)
    record = {
        "result": {"networks": found, "history": []},
        "settings": {"batch_size": size},
    }
    return name, record


def pair(protocol: str, shape: str, small: list, large: list) -> dict[str, dict]:
    """Two runs; each network as (norm, loss)."""
    sides = ((256, small), (5000, large))
    return dict(
        made(protocol, shape, size, [network(i, *one) for i, one in enumerate(side)])
        for size, side in sides
    )


@pytest.mark.parametrize(
    ("value", "status"),
    [
        (0.0, "EXACT"),
        (-1.0, "EXACT"),
        (2.0, "NOT_CONVERGED"),
        (2.0, "BIASED"),
        (None, "NOT_APPLICABLE"),
        (None, "EXACT"),
    ],
)
def test_values_that_must_not_be_used(value, status):
    one = network(0, 1.0, 1e-4)
    one["measures"][NORM.request] = {"value": value, "status": status}
    assert logarithm(one, NORM) is None
    assert log_quotient(one) is None


def test_logarithms():
    one = network(0, 8.0, 2.0)
    assert logarithm(one, NORM) == math.log(8)
    assert log_quotient(one) == pytest.approx(math.log(4))
    assert log_quotient(network(0, 8.0, 0.0)) is None
    volume = next(m for m in MEASURES if m.volume)
    one["measures"][volume.request]["value"] = -250.0
    assert logarithm(one, volume) == 2.5
    product = next(m for m in MEASURES if m.logarithmic)
    one["measures"][product.request]["value"] = -3.0
    assert logarithm(one, product) == -3.0


def test_pairs_are_matched_by_seed():
    small = [network(0, 1.0, 1.0), network(1, 2.0, 1.0)]
    large = [network(1, 20.0, 1.0), network(2, 7.0, 1.0)]
    runs = [("authors", "fc", 256, small), ("authors", "fc", 5000, large)]
    (cell,) = cells(Results(dict(made(*run) for run in runs)))
    found = cell.compare(NORM)
    assert (found.pairs, cell.sizes) == (1, (256, 5000))
    assert found.ratio == pytest.approx(10)


def test_declared_as_in_the_library():
    assert [m.request for m in MEASURES if m.unmoved_by == NOTHING]
    declared = {
        request
        for run in PAPER.runs(False)
        for request in run.settings.get("measures", ())
    }
    assert {m.request for m in MEASURES} == declared
    known = {info.name: info for info in fg.list_measures()}
    for one in MEASURES:
        name, _, text = one.request.rstrip("]").partition("[")
        pairs = [item.split("=") for item in text.split(",") if item]
        options = {key: parse_value(value) for key, value in pairs}
        claims = known[name].invariant_to(known[name].complete(options), one.loss)
        layers, nodes = "layer-rescale" in claims, "node-rescale" in claims
        unmoved = NODES if nodes else LAYERS if layers else NOTHING
        assert one.unmoved_by == unmoved
        assert one.logarithmic == known[name].logarithmic
        assert (known[name].flatter == "larger") == one.volume
    assert {m.request.split("[")[0] for m in MEASURES} == set(known)


@pytest.fixture(scope="module")
def found() -> Results:
    """A small network in place of F1, under the paper's factors."""
    shape = {"kind": "fully connected", "widths": [20, 12, 8, 4]}
    settings = {"network": shape, "samples": 30, "seed": 0}
    settings |= {"factors": invariance.FACTORS["table2"], "tol": invariance.TOLERANCES}
    result = plain(invariance.compute(QUICK, plain(settings)))
    return Results({"table2": {"result": result, "settings": settings}})


def test_limits_of_table_2(found):
    rows = simulations.differences(found, "table2")
    assert [row["factors"] for row in rows][:2] == list(
        EXPECTED["invariance"]["table2"]["differences"]
    )
    assert [row["exact"] for row in rows] == [False, False, True, True]
    for row in rows:
        assert row["within"]
        assert row["euclidean"] > 2
        assert row["float32"] <= (0 if row["exact"] else 1e-5)
        assert row["float64"] <= (0 if row["exact"] else 1e-12)


def test_convolutions_under_powers_of_two():
    settings = {"network": networks.TINY_LENET, "samples": 10, "seed": 0}
    settings["factors"] = invariance.FACTORS["table3"][2:]
    settings["tol"] = invariance.TOLERANCES
    result = plain(invariance.compute(QUICK, plain(settings)))
    for dtype in invariance.DTYPES:
        assert [r["relative_difference"] for r in result[dtype]["rows"]] == [0, 0]


def test_a_difference_above_its_limit_is_seen(found):
    text = simulations.tables_verdict(found)
    assert "agree" in text
    assert "Table 3 was not run" in text
    record = json.loads(json.dumps(found.records))
    record["table2"]["result"]["float32"]["rows"][2]["relative_difference"] = 1e-9
    wrong = Results(record)
    assert "1 of 4 rows" in simulations.tables_verdict(wrong)
    printed = simulations.tables(wrong, EXPECTED["invariance"])
    assert printed.count("above the limits") == 1
    assert "| Table 3, (5, 4, 3, 2, 1/120) | 1.28e-07 | not run" in printed


def test_orders_that_follow_the_train_loss():
    far = pair("authors", "fc", [(1e-5, 1e-11)] * 5, [(10.0, 1e-5)] * 5)
    near = pair("printed", "fc", [(100.0, 1e-4)] * 5, [(120.0, 1.1e-4)] * 5)
    said = "\n".join(cause.verdict(Results(far | near)))
    assert "5 of 5 pairs (the authors' code) and in 5 of 5 pairs (as printed)" in said
    assert "divided by the train loss it is in 5 of 10 pairs" in said
    assert "appear with fully connected, the authors' code (10^6.00)" in said
    assert "do not appear with fully connected, as printed (10^0.08)" in said
    assert "by a factor of at most 1." in said
    assert "1.2 times that of the small ones (p = 0.0625)" in said
    assert cause.in_plain_words(Results(far | near)) == ""  # LeNet was not run
    lenet = pair("authors", "lenet", [(1e-5, 1e-11)] * 5, [(10.0, 1e-5)] * 5)
    lenet |= pair("printed", "lenet", [(9.0, 1e-4)] * 5, [(6.0, 1.1e-4)] * 5)
    words = " ".join(cause.in_plain_words(Results(far | near | lenet)).split())
    assert "(fully connected, as printed; LeNet, as printed) the two kinds" in words
    assert "by a factor of at most 1.5 on average, and not always in" in words
    assert "same direction (LeNet, as printed). So" in words


def test_unequal_pairs_are_not_nearly_equal_on_average():
    losses = [(1e-4, 1e-3), (1e-3, 1e-4)]
    runs = pair("printed", "fc", *([(1.0, one[i]) for one in losses] for i in (0, 1)))
    (cell,) = cells(Results(runs))
    assert abs(cause.loss_orders(cell)) < 1e-9
    assert not cause.near(cell)
    assert "nearly equal" not in " ".join(cause.verdict(Results(runs)))


def test_what_is_left_with_the_slope_within_groups():
    # Within each group the measure goes as the square of the loss, between them as it.
    small = [(1e-8, 1e-10), (1e-6, 1e-9)]
    large = [(1e-2, 1e-4), (1.0, 1e-3)]
    (cell,) = cells(Results(pair("authors", "fc", small, large)))
    assert cause.orders(cell) == pytest.approx(6)
    assert cause.corrected(cell) == pytest.approx(6 - 2 * 6)


def test_orders_that_do_not_follow_the_train_loss():
    runs = pair("authors", "fc", [(1e-5, 1e-5)] * 5, [(10.0, 1.1e-5)] * 5)
    said = "\n".join(cause.verdict(Results(runs)))
    assert "appear with fully connected" in said
    assert "how far the networks were trained" not in said
    assert cause.in_plain_words(Results(runs)) == ""


def test_networks_that_missed_their_goal_are_named():
    runs = pair("printed", "fc", [(1.0, 1e-4)] * 2, [(2.0, 1e-4)] * 2)
    late = runs[name_of("printed", "fc", 256)]["result"]["networks"][0]
    assert "fell short" not in " ".join(cause.verdict(Results(runs)))
    late |= {"reached": False, "train_accuracy": 0.99, "epochs": 200}
    said = " ".join(cause.verdict(Results(runs)))
    assert "1 of 4 networks did not reach 100 % train accuracy" in said
    assert "in the 200 epochs that we gave them" in said
    assert "at 99.00% train accuracy or more" in said
    assert "At nearly equal train losses" not in said


def test_values_left_out_are_counted():
    runs = pair("authors", "fc", [(None, 1e-4), (1.0, 1e-4)], [(5.0, 1e-4)] * 2)
    text = " ".join(PAPER.page(Results(runs), EXPECTED).split())
    assert "small, 1 of 1, 1 left out, p = 1, 10^0.70" in text
    for one in MEASURES:
        assert f"- {one.label}: 1 of 2 pairs." in text
    assert "1 ± 0 (1 left out)" in text


def test_with_one_batch_size_only():
    name, record = made("authors", "fc", 5000, [network(0, 3.0, 1e-4)])
    text = PAPER.page(Results({name: record}), EXPECTED)
    assert "| MNIST / Fully-Connected, 256 | 98.6 ± 0.1 | not run | not run" in text
    assert "| MNIST / Fully-Connected, 5000 | 96.8 ± 0.2 | 90.00 ± 0.00" in text
    assert "Table 4: not run." in text


def test_printed_orders():
    found = [comparison.printed_orders(entry) for entry in EXPECTED["table4"]]
    assert [round(one, 1) for one in found] == [5.9, 4.8, 1.2, 2.6]


def test_stored_tables_2_and_3(stored):
    for name in ("table2", "table3"):
        rows = simulations.differences(stored, name)
        assert len(rows) == 4
        assert all(row["within"] for row in rows)
        printed = EXPECTED["invariance"][name]["differences"]
        assert set(printed) <= {row["factors"] for row in rows}


def test_stored_figure_1(stored):
    products = stored["figure1"]["products"]
    assert all(n is not None for one in products.values() for n in one)
    assert all(
        fast <= slow
        for fast, slow in zip(products["lanczos"], products["power"], strict=True)
    )


def test_page_and_figures_from_what_is_stored(stored, tmp_path):
    text = PAPER.page(stored, EXPECTED)
    PAPER.figures(stored, tmp_path)
    for path in tmp_path.glob("*.svg"):
        assert path.stat().st_size < 200_000
    for name in ("figure1.svg", "losses.svg"):
        assert f"figures/{name}" in text
    made_runs = set(stored)
    assert {"table2", "table3", "figure1"} <= made_runs


@pytest.mark.slow
def test_quick_runs_make_a_page(tmp_path):
    """Table 4 with small networks, trained and measured, then the page from them."""
    records = {}
    for run in PAPER.runs(True):
        if run.name.startswith("table4-authors-fc"):
            settings = plain(run.settings) | {"epochs": 3}
            result = plain(run.compute(QUICK, settings))
            records[run.name] = {"result": result, "settings": settings}
    results = Results(records)
    (cell,) = cells(results)
    assert cell.compare(NORM).pairs == 2
    text = PAPER.page(results, EXPECTED)
    assert "2 / 2^2 = 0.5" in text
    assert "Figure 1: not run." in text
    PAPER.figures(results, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["losses.svg"]
