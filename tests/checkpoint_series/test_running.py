"""A series goes on where it was stopped, and measures nothing twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.runs import save_run
from support.users import namespace, net

import flatgauge as fg
from flatgauge.checkpoint_series import Point, running
from flatgauge.errors import ModelError, OptionError

__all__ = ["net"]

TRACE = "hessian-trace"


def found(net: str, folder: Path, **more: Any) -> fg.Series:
    user = namespace(net)
    given = {"checkpoints": folder / "ck", "store": folder / "store", **more}
    requests = given.pop("requests", [TRACE])
    places, model = given.pop("checkpoints"), given.pop("model", user["model"]())
    return fg.series(
        model, given.pop("data", user["data"]()), places, requests, **given
    )


def files(folder: Path) -> dict[str, int]:
    store = folder / "store"
    return {one.name: one.stat().st_mtime_ns for one in store.glob("*.json")}


def test_each_number_is_that_of_its_checkpoint(net, tmp_path):
    paths = save_run(net, tmp_path / "ck", 3)
    series = found(net, tmp_path)
    assert [point.step for point in series.points] == [10, 20, 30]
    assert [point.name for point in series.points] == [path.name for path in paths]
    user = namespace(net)
    for point, path in zip(series.points, paths, strict=True):
        model = user["model"]()
        model.load_state_dict(torch.load(path))
        expected = fg.measure(fg.Objective(model, user["data"]()), TRACE)[TRACE].value
        assert point.report[TRACE].value == pytest.approx(expected, rel=1e-9)
    rows = series.rows()
    assert [row["step"] for row in rows] == [10, 20, 30]
    assert rows[0]["measure"] == TRACE


def test_nothing_is_measured_twice(net, tmp_path, monkeypatch):
    save_run(net, tmp_path / "ck", 3)
    first = found(net, tmp_path)
    before = files(tmp_path)
    assert len(before) == 3
    measured = []
    kept = fg.Objective.__init__

    def counted(self, *args, **keywords):
        measured.append(1)
        kept(self, *args, **keywords)

    monkeypatch.setattr(fg.Objective, "__init__", counted)
    again = found(net, tmp_path)
    assert not measured
    assert again == first
    next(iter((tmp_path / "store").glob("*.json"))).unlink()
    found(net, tmp_path)
    assert len(measured) == 1


def change_data(net: str) -> dict[str, Any]:
    inputs, targets = namespace(net)["data"]()
    return {"data": (inputs * 1.0000001, targets)}


def change_model(net: str) -> dict[str, Any]:
    model = namespace(net)["model"]()
    model[1] = torch.nn.Tanh()
    return {"model": model}


CHANGES = {
    "seed": lambda _: {"seed": 1},
    "loss": lambda _: {"loss": "normalized-cross-entropy"},
    "options": lambda _: {"options": {TRACE: {"target": 0.2}}},
    "measures": lambda _: {"requests": [TRACE, "spectral-norm-product"]},
    "mode": lambda _: {"mode": "train"},
    "precision": lambda _: {"dtype": torch.float32},
    "data": change_data,
    "model": change_model,
}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_the_numbers_hang_on_is_in_the_key(change, net, tmp_path):
    save_run(net, tmp_path / "ck", 1)
    found(net, tmp_path)
    before = files(tmp_path)
    found(net, tmp_path, **CHANGES[change](net))
    after = files(tmp_path)
    assert len(after) == 2
    assert before.items() <= after.items()


def test_another_checkpoint_under_the_same_name_is_measured(net, tmp_path):
    save_run(net, tmp_path / "ck", 1)
    first = found(net, tmp_path)
    save_run(net, tmp_path / "ck", 1, growth=0.5)
    second = found(net, tmp_path)
    one, other = (one.points[0].report[TRACE].value for one in (first, second))
    assert one != pytest.approx(other, rel=1e-3)


@pytest.mark.parametrize("content", ["", "{", '{"schema": "flatgauge-report-1"}'])
def test_a_broken_file_in_the_store_is_written_anew(content, net, tmp_path):
    save_run(net, tmp_path / "ck", 1)
    first = found(net, tmp_path)
    (stored,) = (tmp_path / "store").glob("*.json")
    stored.write_text(content)
    again = found(net, tmp_path)
    value = first.points[0].report[TRACE].value
    assert again.points[0].report[TRACE].value == pytest.approx(value, rel=1e-9)
    assert fg.Report.from_json(stored)[TRACE].value == pytest.approx(value, rel=1e-9)


def test_one_bad_checkpoint_does_not_stop_the_others(net, tmp_path):
    paths = save_run(net, tmp_path / "ck", 3)
    paths[1].write_bytes(paths[1].read_bytes()[:200])
    series = found(net, tmp_path)
    assert [point.step for point in series.points] == [10, 30]
    assert "is cut short" in series.failures["net_20.pt"]
    assert "net_20.pt: " in str(series)
    paths[0].write_bytes(b"")
    paths[2].write_bytes(b"")
    with pytest.raises(ModelError, match="is cut short"):
        found(net, tmp_path)


def test_mistakes_are_told_before_anything_is_measured(net, tmp_path):
    save_run(net, tmp_path / "ck", 1)
    with pytest.raises(OptionError, match="the measure 'sharp' is not"):
        found(net, tmp_path, requests=["sharp"])
    assert not (tmp_path / "store").exists()


def test_several_runs(net, tmp_path):
    save_run(net, tmp_path / "a", 3)
    save_run(net, tmp_path / "b", 2, growth=0.3)
    runs = {"slow": tmp_path / "a", "fast": str(tmp_path / "b" / "*.pt")}
    series = found(net, tmp_path, checkpoints=runs)
    assert series.runs == ["slow", "fast"]
    assert [p.step for p in series.of("fast")] == [10, 20]
    assert str(series).count(TRACE) == 2


def test_the_step_in_a_file_comes_first(net, tmp_path):
    (tmp_path / "ck").mkdir()
    state = namespace(net)["model"]().state_dict()
    for name, step in (("last.ckpt", 5), ("epoch=0-step=3.ckpt", 3)):
        content = {"state_dict": state, "global_step": step}
        torch.save(content, tmp_path / "ck" / name)
    series = found(net, tmp_path)
    assert [point.name for point in series.points] == [
        "epoch=0-step=3.ckpt",
        "last.ckpt",
    ]
    assert series.points[1].step == 5


@pytest.mark.parametrize("count", [10, 100])
def test_the_table_stays_narrow(count, net, tmp_path):
    save_run(net, tmp_path / "ck", 1)
    (point,) = found(net, tmp_path).points
    points = [Point("", f"net_{i}", i, point.report) for i in range(count)]
    lines = str(fg.Series(points)).splitlines()
    assert len(lines) == 4
    assert max(map(len, lines)) < 100
    assert lines[0].startswith(f"{count} checkpoints, steps 0 to {count - 1}: ")


def test_a_store_that_cannot_be_written_is_told_before_measuring(
    net, tmp_path, monkeypatch
):
    save_run(net, tmp_path / "ck", 1)
    (tmp_path / "a file").touch()
    monkeypatch.setattr(running, "measure", None)
    with pytest.raises(OptionError, match=r"stored in .*a file.*name another folder"):
        found(net, tmp_path, store=tmp_path / "a file")


@pytest.mark.parametrize("letter", ["a", "ü", "网"])
def test_the_longest_name_that_a_file_can_have(letter, net, tmp_path):
    [path] = save_run(net, tmp_path / "ck", 1)
    path.rename(path.with_name(letter * ((255 - 3) // len(letter.encode())) + ".pt"))
    first = found(net, tmp_path)
    assert len(files(tmp_path)) == 1
    assert found(net, tmp_path) == first
