"""A study: numbers, statistics, what fails, and what is not measured again."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.runs import save_study
from support.users import namespace, net

import flatgauge as fg
from flatgauge.cli import main
from flatgauge.errors import DataError, FlatgaugeError, OptionError
from flatgauge.measures.registry import find_measure
from flatgauge.studies import Network, Plan, working
from flatgauge.studies.result import judged

__all__ = ["net"]

TRACE, PRODUCT = "hessian-trace", "spectral-norm-product"
COUNT = 6


def found(net: str, folder: Path, **more: Any) -> fg.Study:
    user = namespace(net)
    given: dict[str, Any] = {
        "table": folder / "runs" / "study.csv",
        "target": "gap",
        "store": folder / "store",
        "resamples": 50,
        **more,
    }
    requests = given.pop("requests", [TRACE, PRODUCT])
    return fg.study(
        user["model"](), user["data"](), given.pop("table"), requests, **given
    )


@pytest.fixture
def rows(net, tmp_path) -> list[dict[str, Any]]:
    return save_study(net, tmp_path / "runs", COUNT)


@pytest.fixture
def measured(monkeypatch) -> list[str]:
    """The names of what is measured, as it is."""
    names: list[str] = []
    kept = working.measured

    def counted(checkpoint, *args):
        names.append(checkpoint.name)
        return kept(checkpoint, *args)

    monkeypatch.setattr(working, "measured", counted)
    return names


def test_each_number_is_that_of_its_checkpoint(net, rows, tmp_path):
    study = found(net, tmp_path, hyperparameters=["width"], environments="dataset")
    user = namespace(net)
    values = []
    for row, network in zip(rows, study.networks, strict=True):
        model = user["model"]()
        model.load_state_dict(torch.load(tmp_path / "runs" / row["checkpoint"]))
        expected = fg.measure(fg.Objective(model, user["data"]()), TRACE)[TRACE].value
        assert network.report[TRACE].value == pytest.approx(expected, rel=1e-9)
        assert network.name == row["checkpoint"]
        values.append(expected)
    again = fg.rank_statistics(
        values,
        [row["gap"] for row in rows],
        {"width": [row["width"] for row in rows]},
        [row["dataset"] for row in rows],
        resamples=50,
    )
    for name, one in again.statistics.items():
        own = study.statistics[TRACE][name]
        assert own.value == pytest.approx(one.value), name
        assert own.low == pytest.approx(one.low), name


def test_nothing_is_measured_twice(net, rows, tmp_path, measured):
    first = found(net, tmp_path)
    assert measured == [row["checkpoint"] for row in rows]
    again = found(net, tmp_path, target="accuracy", better="larger")
    assert len(measured) == COUNT
    assert [one.report for one in again.networks] == [
        one.report for one in first.networks
    ]
    found(net, tmp_path, seed=1)
    assert len(measured) == 2 * COUNT


def test_another_checkpoint_of_the_same_name_is_measured(net, rows, tmp_path, measured):
    found(net, tmp_path)
    save_study(net, tmp_path / "runs", COUNT)
    path = tmp_path / "runs" / rows[3]["checkpoint"]
    torch.save({k: 3 * v for k, v in torch.load(path).items()}, path)
    measured.clear()
    found(net, tmp_path)
    assert measured == [rows[3]["checkpoint"]]


def test_what_is_better_turns_the_signs(net, rows, tmp_path):
    smaller = found(net, tmp_path, target="accuracy", better="smaller")
    larger = found(net, tmp_path, target="accuracy", better="larger")
    for measure in (TRACE, PRODUCT):
        one, other = (s.statistics[measure]["kendall"].value for s in (smaller, larger))
        assert one == pytest.approx(-other)
    # The norms grow as the accuracy falls.
    assert larger.statistics[PRODUCT]["kendall"].value == 1


def test_a_measure_whose_larger_values_are_flatter_is_turned(net, rows, tmp_path):
    study = found(net, tmp_path, requests=[PRODUCT])
    flat = {
        "measure": "volume-flatness",
        "provenance": study.networks[0].report.provenance,
    }
    assert find_measure("volume-flatness").flatter == "larger"
    networks = []
    for one in study.networks:
        plain = one.report.to_dict()
        value = {**plain["measurements"][PRODUCT], "measure": flat["measure"]}
        plain["measurements"]["volume-flatness"] = value
        networks.append(Network(one.name, one.row, fg.Report.from_dict(plain)))
    turned = judged(networks, {}, Plan("gap", resamples=5))
    one, other = (turned.statistics[m]["kendall"] for m in (PRODUCT, "volume-flatness"))
    assert one.value == pytest.approx(-other.value)


def test_ties_are_told(net, rows, tmp_path):
    study = found(net, tmp_path, requests=[TRACE, "fisher-rao-norm", PRODUCT])
    said = str(study)
    assert "tied with the best (behind by 0.000)" in said
    assert study.verdict().startswith(
        "No single measure orders the networks best by gap"
    )
    row = study.rows()[0]
    assert row["place"] == 1
    assert {row["measure"] for row in study.rows()} == set(study.measures)


def test_one_bad_checkpoint_does_not_stop_the_others(net, rows, tmp_path):
    runs = tmp_path / "runs"
    (runs / rows[1]["checkpoint"]).write_bytes(b"")
    (runs / rows[2]["checkpoint"]).unlink()
    study = found(net, tmp_path)
    assert len(study.networks) == COUNT - 2
    assert "is cut short" in study.failures[rows[1]["checkpoint"]]
    assert "not found" in study.failures[rows[2]["checkpoint"]]
    assert f"{rows[1]['checkpoint']}: " in str(study)
    for row in rows:
        (runs / row["checkpoint"]).write_bytes(b"")
    with pytest.raises(FlatgaugeError, match="no checkpoint could be measured: "):
        found(net, tmp_path)


def test_what_a_model_raises_is_told_and_tried_again(net, rows, tmp_path, monkeypatch):
    kept = working.measured

    def broken(checkpoint, *args):
        if checkpoint.name == rows[0]["checkpoint"]:
            raise ValueError("broken on purpose")
        return kept(checkpoint, *args)

    with monkeypatch.context() as patch:
        patch.setattr(working, "measured", broken)
        study = found(net, tmp_path)
    failures = {rows[0]["checkpoint"]: "ValueError: broken on purpose"}
    assert study.failures == failures
    assert not found(net, tmp_path).failures


def test_missing_targets_are_left_out_and_named(net, rows, tmp_path):
    table = [{**row} for row in rows]
    for row in table:
        row["checkpoint"] = str(tmp_path / "runs" / row["checkpoint"])
    table[4]["gap"] = ""
    # Entries as other packages have them.
    table[0]["width"] = np.int64(3)
    study = found(net, tmp_path, table=table)
    own = study.statistics[TRACE]
    assert (own.networks, own.left_out) == (COUNT - 1, {"no target": [4]})
    assert "5 networks; left out: 1 (no target)" in str(study)
    assert json.loads(json.dumps(study.to_dict()))["networks"][0]["row"]["width"] == 3


WIDTHS = """
import torch
from torch import nn

def model(width):
    torch.manual_seed(width)
    layers = [nn.Linear(3, width), nn.ReLU(), nn.Linear(width, 3)]
    return nn.Sequential(*layers).double()

def data(labels):
    random = torch.Generator().manual_seed(labels)
    inputs = torch.randn(10, 3, generator=random, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (10,), generator=random)

def fixed():
    return data(0)
"""


def test_model_and_data_may_be_functions_of_columns(net, tmp_path):
    (tmp_path / "widths.py").write_text(WIDTHS)
    user = namespace(str(tmp_path / "widths.py"))
    (tmp_path / "runs").mkdir()
    lines = ["checkpoint,gap,width,labels"]
    for width in (4, 6):
        torch.save(user["model"](width).state_dict(), tmp_path / "runs" / f"{width}.pt")
        for labels in (1, 2):
            # The same weights under two names, on other data.
            name = f"{width}-{labels}.pt"
            weights = (tmp_path / "runs" / f"{width}.pt").read_bytes()
            (tmp_path / "runs" / name).write_bytes(weights)
            lines.append(f"{name},{width / 10 + labels},{width},{labels}")
    (tmp_path / "runs" / "study.csv").write_text("\n".join(lines))
    expected = [
        fg.measure(fg.Objective(user["model"](width), user["data"](labels)), TRACE)
        for width in (4, 6)
        for labels in (1, 2)
    ]
    table = tmp_path / "runs" / "study.csv"
    given = {"target": "gap", "store": tmp_path / "store", "resamples": 5}
    study = fg.study(user["model"], user["data"], table, TRACE, **given)

    def assert_expected(networks: list[dict[str, Any]]) -> None:
        found = [one["values"][TRACE]["value"] for one in networks]
        assert found == pytest.approx([one[TRACE].value for one in expected], rel=1e-9)
        assert len(set(found)) == 4

    assert_expected(study.to_dict()["networks"])
    command = ["study", "widths.py:model", "widths.py:data", "runs", "--target", "gap"]
    assert main([*command, "--measure", TRACE, "--json", "a.json"]) == 0
    plain = json.loads((tmp_path / "a.json").read_text())
    assert_expected(plain["extras"]["study"]["networks"])
    command[2] = "widths.py:fixed"
    assert main([*command, "--measure", TRACE, "--json", "a.json"]) == 0
    networks = json.loads((tmp_path / "a.json").read_text())["extras"]["study"][
        "networks"
    ]
    assert len({one["values"][TRACE]["value"] for one in networks}) == 2


TABLES = {
    "": "has no rows",
    "checkpoint,gap\n": "has no rows",
    "checkpoint,gap\na.pt,1\na.pt,2\n": "names the checkpoint 'a.pt' twice",
    "checkpoint,gap\na.pt\n": "line 2 of .* has not as many entries",
    "checkpoint,gap\na.pt,1,2\n": "line 2 of .* has not as many entries",
    "name,gap\na.pt,1\n": "no column 'checkpoint': it has name, gap",
    "checkpoint,loss\na.pt,1\n": "no column 'gap'",
    "checkpoint,gap\na.pt,high\n": "'high' in the column 'gap' is no number",
}


@pytest.mark.parametrize("text", TABLES)
def test_tables_that_are_wrong(text, net, tmp_path, measured):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises((DataError, OptionError), match=TABLES[text]):
        found(net, tmp_path, table=tmp_path / "t.csv")
    assert not measured


def test_options_that_are_wrong(net, rows, tmp_path, measured):
    for more, said in [
        ({"better": "higher"}, "better= is 'higher': use smaller or larger"),
        ({"jobs": 0}, "jobs= is 0"),
        ({"hyperparameters": ["depth"]}, "no column 'depth'"),
        ({"requests": ["sharp"]}, "the measure 'sharp' is not"),
        ({"table": tmp_path / "none.csv"}, "could not be read"),
    ]:
        with pytest.raises(FlatgaugeError, match=said):
            found(net, tmp_path, **more)
    assert not measured


def test_without_ray_it_says_what_to_install(net, rows, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(OptionError, match=r"pip install 'flatgauge\[ray\]'"):
        found(net, tmp_path, ray=True)


def test_what_cannot_be_sent_is_told(net, rows, tmp_path):
    with pytest.raises(OptionError, match="cannot be sent to other processes"):
        found(net, tmp_path, jobs=2, forward=lambda model, batch: model(batch[0]))


def test_the_command_gives_the_same(net, rows, tmp_path, capsys):
    command = ["study", f"{net}:model", f"{net}:data", "runs", "--target", "gap"]
    command += ["--measure", TRACE, "--measure", PRODUCT, "--hyperparameter", "width"]
    assert main([*command, "--json", "a.json", "--out", "a.csv"]) == 0
    assert PRODUCT in capsys.readouterr().out
    plain = json.loads((tmp_path / "a.json").read_text())["extras"]["study"]
    study = found(net, tmp_path, hyperparameters=["width"], resamples=1000)
    assert plain == json.loads(json.dumps(study.to_dict()))
    with (tmp_path / "a.csv").open(newline="") as file:
        assert len(list(csv.DictReader(file))) == len(study.rows())
    assert (tmp_path / "runs" / "flatgauge-study" / "study.sqlite").exists()
    assert main([*command, "--weights", "a.pt"]) == 2
    assert "takes its weights from the table" in capsys.readouterr().err
    (tmp_path / "runs" / "other.csv").write_text("")
    assert main(command) == 2
    assert "say which with --table" in capsys.readouterr().err


def test_ctrl_c_says_that_the_same_command_goes_on(net, rows, monkeypatch, capsys):
    kept, calls = working.measured, []

    def stopped(*args):
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return kept(*args)

    monkeypatch.setattr(working, "measured", stopped)
    command = ["study", f"{net}:model", f"{net}:data", "runs", "--target", "gap"]
    assert main([*command, "--measure", PRODUCT]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert main([*command, "--measure", PRODUCT]) == 0
    assert len(calls) == COUNT + 1


def test_numbers_have_the_rows_of_the_table(net, rows, tmp_path):
    study = found(net, tmp_path)
    numbers = study.numbers()
    assert len(numbers) == 2 * COUNT
    assert numbers[0]["width"] == "0"
    assert np.isclose(float(numbers[-1]["gap"]), rows[-1]["gap"])
    assert "networks ordered by gap (smaller is better)" in study.sentence()


def test_one_file_under_two_names_is_named_twice(net, rows, tmp_path):
    name = rows[0]["checkpoint"]
    table = [{"checkpoint": tmp_path / "runs" / one["checkpoint"]} for one in rows]
    table += [{"checkpoint": f"{tmp_path}/runs/../runs/{name}"}]
    for row in table:
        row.update(checkpoint=str(row["checkpoint"]), gap=1.0)
    with pytest.raises(DataError, match="one checkpoint twice, as"):
        found(net, tmp_path, table=table)


def test_a_copy_of_a_checkpoint_is_reported_under_its_own_name(net, rows, tmp_path):
    runs = tmp_path / "runs"
    copied = runs / "copied.pt"
    copied.write_bytes((runs / rows[0]["checkpoint"]).read_bytes())
    table = [
        {"checkpoint": str(path), "gap": 1.0}
        for path in (runs / rows[0]["checkpoint"], copied)
    ]
    study = found(net, tmp_path, table=table)
    for row, network in zip(table, study.networks, strict=True):
        assert network.report.extras["checkpoint"]["name"] == row["checkpoint"]
        assert network.report.extras["checkpoint"]["path"] == row["checkpoint"]


def test_a_row_without_a_column_is_named(net, rows, tmp_path):
    table = [{"checkpoint": "a.pt", "gap": 1.0}, {"checkpoint": "b.pt"}]
    with pytest.raises(DataError, match="row 2 of the table has no 'gap'"):
        found(net, tmp_path, table=table)


def test_a_store_that_cannot_be_made_is_named(net, rows, tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(FlatgaugeError, match="no results can be stored in"):
        found(net, tmp_path, store=tmp_path / "taken")
