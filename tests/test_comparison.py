from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch
from support.cases import CASES
from support.pages import measurement as made
from support.pages import provenance
from torch import nn

import flatgauge as fg
from flatgauge.comparison import _row, compared
from flatgauge.errors import OptionError, UnlikeWarning
from flatgauge.report.answer import compared as answer


def test_two_checkpoints():
    first = CASES["mlp"].objective()
    second = first.at({n: 1.5 * t for n, t in first.parameters.items()})
    found = fg.compare({"first": first, "second": second}, "hessian-trace")
    [row] = found.comparison_rows
    assert row.flatter == min(row.values, key=row.values.get)
    assert row.significant
    assert {one["checkpoint"]: one["value"] for one in found.rows()} == row.values
    assert {one["flatter"] for one in found.rows()} == {row.flatter}
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
    found = fg.compare({"a": objective, "b": twin}, *names)
    rows = {row.measure: row for row in found.comparison_rows}
    assert rows["hessian-trace"].flatter == "a"
    values = rows["normalized-sharpness"].values
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


def measurement(name: str, value: float, **changes):
    return made(name, value, **{"options": {}, "details": {}, **changes})


def sampled(
    count: int = 64, dtype: torch.dtype = torch.float32, **more
) -> fg.Objective:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 4)).to(dtype)
    inputs, labels = torch.randn(64, 6), torch.randint(0, 4, (64,))
    data = (inputs[:count], labels[:count])
    return fg.Objective(model, data, **{"batch_size": 64, **more})


def test_no_network_is_flatter_than_itself():
    """Other batches round otherwise, also where every value is exact."""
    found = fg.compare({"64": sampled(), "16": sampled(batch_size=16)})
    values = found.comparison_rows[0].values
    assert values["64"] != values["16"]
    assert not any(row.significant or row.flatter for row in found.comparison_rows)
    assert str(found).count("- (within error)") == len(found.comparison_rows)
    assert found.unlike == found.disagreements == []


def test_parts_that_cancel_round_as_they_do():
    layers = {"a": 1.0, "b": -1.0}
    facts = provenance(dtype="float32")
    tiny = [
        measurement("hessian-trace", value, details={"layers": one}, provenance=facts)
        for value, one in ((1e-5, layers), (2e-5, layers), (3e-5, {"a": 3e-5}))
    ]
    assert [one.size for one in tiny] == [2.0, 2.0, 3e-5]
    assert not _row("hessian-trace", {"a": tiny[0], "b": tiny[1]}).significant
    exact = [replace(one, details={}) for one in tiny]
    assert _row("hessian-trace", {"a": exact[0], "b": exact[1]}).significant


def test_logarithms_round_as_what_they_are_of():
    facts = provenance(dtype="float32")
    one, other = (
        measurement("spectral-norm-product", value, details={}, provenance=facts)
        for value in (1e-6, 2e-6)
    )
    assert not _row("spectral-norm-product", {"a": one, "b": other}).significant


def test_it_says_in_words_what_was_compared():
    found = fg.compare([sampled(), sampled()], "hessian-trace")
    assert found.names == ["1", "2"]
    assert found.text.startswith("Compared: '1', '2' by 1 measure on 64 samples (")
    assert "cross-entropy, eval mode, float32" in found.text
    assert "rounding (1e-03 of the value)" in found.text
    assert found.text in str(found)
    assert found.to_dict()["text"] == found.text


@pytest.mark.parametrize(
    ("what", "other", "words"),
    [
        ("data", {"count": 32}, "64 samples .* for 'a'; 32 samples .* for 'b'"),
        ("mode", {"mode": "train"}, "eval mode for 'a'; train mode for 'b'"),
        ("loss", {"loss": "normalized-cross-entropy"}, "cross-entropy for 'a'; norm"),
        ("precision", {"dtype": torch.float64}, "float32 for 'a'; float64 for 'b'"),
    ],
)
def test_what_was_not_measured_alike_is_named(what, other, words):
    objectives = {"a": sampled(), "b": sampled(**other)}
    with pytest.warns(
        UnlikeWarning, match=rf"Not measured alike, in the {what}: {words}"
    ):
        found = fg.compare(objectives, "hessian-trace")
    [unlike] = found.unlike
    assert unlike.what == what
    assert unlike.decisive == (what != "precision")
    assert unlike.text in str(found)
    row = found.comparison_rows[0]
    assert row.flatter is None
    assert row.untold == ("not measured alike" if unlike.decisive else "within error")
    assert f"- ({row.untold})" in str(found)
    assert unlike.text in found.sentence()
    json.dumps(found.to_dict(), allow_nan=False)


def test_a_surrogate_of_one_checkpoint_alone_gives_no_order():
    one = measurement("normalized-sharpness", 1.0, loss="cross-entropy")
    other = measurement("normalized-sharpness", 2.0, loss="normalized-cross-entropy")
    row = _row("normalized-sharpness", {"a": one, "b": other})
    assert (row.flatter, row.untold) == (None, "not measured alike")


def test_a_sentence_for_a_paper_has_the_loss_of_both():
    first = sampled()
    second = first.at({n: 2.0 * t for n, t in first.parameters.items()})
    said = fg.compare({"a": first, "b": second}, "hessian-trace").sentence()
    for name, one in (("a", first), ("b", second)):
        assert f"'{name}', Sequential (136 parameters, cross-entropy " in said
        assert f"{one.value():.4g})" in said


def test_stored_reports_are_compared_without_their_networks(tmp_path):
    names = ("hessian-trace", "fisher-rao-norm")
    first = CASES["mlp"].objective()
    second = first.at({n: 1.5 * t for n, t in first.parameters.items()})
    found = fg.compare({"a": first, "b": second}, *names)
    again = {}
    for name, report in found.reports.items():
        report.to_json(tmp_path / name)
        again[name] = fg.Report.from_json(tmp_path / name)
    assert compared(again) == found


def test_other_samples_can_be_asked_about():
    first = CASES["mlp"].objective()
    second = first.at({n: 1.5 * t for n, t in first.parameters.items()})
    found = fg.compare([first, second], "fisher-rao-norm", resamples=1)
    for report in found.reports.values():
        assert report["fisher-rao-norm"].data_uncertainty is not None
    [*_, confidence] = answer(found.report().to_dict())[:3]
    assert "of 1 are larger than two standard errors over the samples" in confidence
