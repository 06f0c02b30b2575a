from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.cases import CASES

import flatgauge as fg
from flatgauge.comparison import _row
from flatgauge.errors import OptionError


def test_two_checkpoints():
    first = CASES["mlp"].objective()
    second = first.at({n: 1.5 * t for n, t in first.parameters.items()})
    found = fg.compare({"first": first, "second": second}, "hessian-trace")
    row = found.rows()[0]
    values = row["values"]
    assert row["flatter"] == min(values, key=values.get)
    assert row["significant"]
    json.dumps(found.to_dict(), allow_nan=False)
    assert "first" in str(found)


def test_it_has_the_page_of_all_checkpoints(tmp_path):
    first = CASES["mlp"].objective()
    second = first.at({n: 1.5 * t for n, t in first.parameters.items()})
    found = fg.compare({"one": first, "two": second}, "hessian-trace")
    report = found.report()
    assert report.extras["comparison"] == found.to_dict()
    assert "comparison" not in found.reports["one"].extras
    report.to_json(tmp_path / "found.json")
    again = fg.Report.from_json(tmp_path / "found.json")
    again.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert '<section id="comparison">' in page
    assert again.extras["comparison"]["names"] == ["one", "two"]


def test_a_twin_differs_only_where_nothing_is_claimed():
    objective = CASES["mlp"].objective()
    twin = objective.with_model(fg.sharpen(objective, 100.0))
    names = ("hessian-trace", "normalized-sharpness")
    rows = {
        r["measure"]: r for r in fg.compare({"a": objective, "b": twin}, *names).rows()
    }
    assert rows["hessian-trace"]["flatter"] == "a"
    values = rows["normalized-sharpness"]["values"]
    assert values["a"] == pytest.approx(values["b"], rel=1e-9)


def test_disagreement_is_explained():
    objective = CASES["mlp"].objective()
    scaled = objective.at(
        {
            n: 0.6 * t if n.startswith("4.") else t
            for n, t in objective.parameters.items()
        }
    )
    twin = scaled.with_model(fg.sharpen(scaled, 1e3))
    found = fg.compare(
        {"plain": objective, "sharpened": twin},
        "hessian-trace",
        "fisher-rao-norm",
    )
    assert len(found.disagreements) in (0, 2)
    for one in found.disagreements:
        assert "rescaling nodes" in one["text"]


def test_one_checkpoint_is_no_comparison():
    with pytest.raises(OptionError, match="at least two"):
        fg.compare({"alone": CASES["mlp"].objective()})


def test_lower_bounds_are_not_read_as_numbers_with_error_bars():
    objective, name = CASES["mlp"].objective(), "epsilon-sharpness"
    report = fg.measure(objective, name)
    found = report[name]
    assert found.details["bound"] == "lower"
    assert 0 <= found.details["bound_spread"] < found.value
    assert "rounding alone" in found.message
    assert f"≥ {found.value:.6g}  " in str(report)
    wide = replace(found, details={**found.details, "bound_spread": found.value})
    near = replace(found, value=1.01 * found.value)
    assert found.error_bar < wide.error_bar == found.value
    assert _row(name, {"a": found, "b": near}).uncertainties == {"a": None, "b": None}
    assert not _row(name, {"a": wide, "b": near}).significant
