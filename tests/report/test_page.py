from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from support.pages import (
    REQUESTS,
    Text,
    audit_row,
    full,
    measurement,
    provenance,
    small,
    strings,
)

from flatgauge.report.drawing import svg
from flatgauge.report.figures import figures
from flatgauge.report.formatting import number
from flatgauge.report.page import fragment, render
from flatgauge.report.verdict import verdict
from flatgauge.results import Report, Status

HOSTILE = [
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "</script><script>alert(1)</script>",
    "two\nlines\r\nand a tab\t",
    "{{ 7 * 7 }} {% raw %}",
    "x" * 10_000,
]


@pytest.mark.parametrize("build", [small, full])
def test_every_measurement_is_visible(build):
    report = build()
    text = Text(render(report.to_dict())).text
    for request, one in report.measurements.items():
        assert request in text
        assert number(one.value) in text
        if one.uncertainty is not None:
            assert f"± {number(one.uncertainty, 2)}" in text
    assert "there is no second class." in text


def test_the_page_is_drawn_from_json_alone(tmp_path):
    report = full()
    report.to_json(tmp_path / "report.json")
    again = Report.from_json(tmp_path / "report.json")
    again.to_html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text() == render(report.to_dict())


def test_nothing_is_loaded_from_elsewhere():
    html = render(full().to_dict())
    without_scripts = re.sub(r"<script.*?</script>", "", html, flags=re.DOTALL)
    assert not re.findall(r"""(?:src|href)=["'](?!#)""", without_scripts)
    assert "default-src 'none'" in html
    assert "://" not in re.sub(r'xmlns(:xlink)?="[^"]*"', "", without_scripts)


def test_pages_are_small():
    assert len(render(small().to_dict())) < 60_000
    assert len(render(full().to_dict()).encode()) < 500_000


def test_sections_come_in_their_order():
    html = render(full().to_dict())
    order = [
        "meaning",
        "verdict",
        "comparison",
        "audit",
        "layers",
        "spectrum",
        "landscapes",
        "symmetries",
        "convergence",
        "provenance",
        "reading",
    ]
    places = [html.index(f'<section id="{name}">') for name in order]
    assert places == sorted(places)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_strings_are_escaped(hostile):
    plain = full().to_dict()
    request = hostile
    bad = measurement(hostile, 1.5, message=hostile, options={hostile: hostile})
    bad = replace(bad, details={"layers": {hostile: 1.0}, "method": hostile})
    report = Report(
        {request: bad},
        provenance(model=hostile, loss=hostile, device=hostile, time=hostile),
        {
            "measures": {
                request: {
                    "title": hostile,
                    "formula": hostile,
                    "reference": hostile,
                    "flatter": hostile,
                    "invariant_to": [hostile],
                }
            },
            "audit": {
                "rows": [audit_row(request, hostile, False, 0.5, 2.0, "moves")],
                "function_change": {hostile: 0.0},
                "sharpened": None,
            },
            "landscapes": [
                {
                    **one,
                    "title": hostile,
                    "labels": [hostile] * len(one["axes"]),
                    "kind": hostile,
                    "normalize": hostile,
                    "path": [[0.0, 0.0], [0.5, 0.5]],
                    "names": [hostile, hostile],
                }
                for one in plain["extras"]["landscapes"]
            ],
            "spectrum": {**plain["extras"]["spectrum"], "message": hostile},
            "symmetries": {"dimension": 1, "text": hostile},
        },
    )
    clean = Text(render(full().to_dict()))
    page = Text(render(report.to_dict()))
    assert set(page.tags) <= set(clean.tags) | {"ul", "li", "mtext"}
    assert "math" in clean.tags
    assert page.tags.count("script") == clean.tags.count("script")
    assert page.handlers == []
    assert " ".join(hostile.split()) in page.text
    assert Text(fragment(report.to_dict())).tags.count("script") == 0


@pytest.mark.parametrize("hostile", HOSTILE)
def test_figures_hold_no_tags_of_strangers(hostile):
    extras = {
        "comparison": {
            "names": [hostile, "b"],
            "rows": [
                {
                    "measure": hostile,
                    "values": {hostile: 1.0, "b": 2.0},
                    "uncertainties": {hostile: None, "b": None},
                }
            ],
        },
        "audit": {
            "rows": [audit_row(hostile, hostile, False, 0.5, 2.0, "moves")],
            "function_change": {},
        },
    }
    drawn = figures({"extras": extras, "measurements": {}})
    assert set(drawn) == {"audit", "comparison"}
    for name, figure in drawn.items():
        assert all(len(one) < 300 for one in strings(figure))
        page = Text(svg(figure, name))
        assert not {"script", "img", "b"} & set(page.tags)
        assert page.handlers == []


def test_a_sign_change_and_a_missing_ratio_do_not_break_the_figure():
    rows = [
        audit_row("a", "permutation", False, -1.0, 2.0, "moves"),
        audit_row("b", "permutation", False, None, None, "not judged"),
        audit_row("c", "permutation", False, 1e-300, 1e300, "moves"),
    ]
    audit = {"rows": rows, "function_change": {}}
    figure = figures({"extras": {"audit": audit}, "measurements": {}})["audit"]
    assert [x for trace in figure["data"] for x in trace["x"]] == [-300.0, 300.0, None]
    json.dumps(figure, allow_nan=False)
    assert "<svg" in svg(figure, "audit")


def test_labels_of_the_audit_name_whole_kinds():
    kinds = [
        "branch-split",
        "layer-rescale",
        "node-rescale",
        "permutation",
        "sign-flip",
    ]
    rows = [audit_row("a", kind, True, 1.0, 1.0, "holds") for kind in kinds]
    labels = []
    for shown in (rows, rows[:2]):
        audit = {"rows": shown, "function_change": {}}
        figure = figures({"extras": {"audit": audit}, "measurements": {}})["audit"]
        labels.append(figure["layout"]["annotations"][-1]["text"])
    assert labels == [
        "branch-split, layer-rescale, node-rescale and 2 more",
        "branch-split, layer-rescale",
    ]


def test_the_headline_names_what_moved_and_what_did_not():
    report = full()
    del report.extras["comparison"]
    headline, sentences = verdict(report.to_dict())
    assert "Trace of the Hessian moved by a factor of 14.0" in headline
    assert "Rescaling did not move normalized-sharpness" in headline
    assert any("×1,024 sharper" in one for one in sentences)
    # The output scaling moved it further, but it changes the outputs.
    assert "9" not in headline
    assert headline in verdict(full().to_dict())[1]


def test_the_sharpened_twin_counts_as_every_other_one():
    report = full()
    name = "hessian-spectral-norm"
    one = measurement(name, 2.0)
    twin = {"adversarial": True, "change": "×1.02e+03"}
    report.extras["audit"]["rows"] = [
        audit_row(name, "node-rescale", False, 1.0, 1.0, "stays"),
        audit_row(name, "layer-rescale", False, 1024.0, 1024.0, "moves") | twin,
        audit_row(REQUESTS[1], "node-rescale", True, 1.0, 1.0, "holds"),
    ]
    del report.extras["comparison"]
    plain = replace(report, measurements={name: one, **report.measurements}).to_dict()
    headline, sentences = verdict(plain)
    assert f"{name} moved by a factor of 1,024" in headline
    assert "Rescaling did not move normalized-sharpness" in headline
    assert any(one.startswith("A twin built on purpose") for one in sentences)
    text = Text(render(plain)).text
    assert f"{name} 2.000 ✓ exact moved ×1,024" in text
    assert "layer-rescale (on purpose)" in text


def test_what_was_not_claimed_is_never_said_to_hold():
    report = full()
    row = audit_row(REQUESTS[0], "node-rescale", False, 1.0, 1.0, "stays")
    report.extras["audit"] = {
        "rows": [row],
        "function_change": {},
        "sharpened": None,
        "untried": "this network has no rescaling",
    }
    del report.extras["comparison"]
    text = Text(render(report.to_dict())).text
    assert "not tried on purpose, none claimed" in text
    assert "no move seen" not in text
    assert "Random elements alone were tried: this network has no rescaling." in text
    assert "did not move" not in text.split("Audit:")[0]
    report.extras["audit"]["rows"] = [row | {"adversarial": True}]
    text = Text(render(report.to_dict())).text
    assert "no move seen, none claimed" in text


def test_kinds_that_could_not_be_tried_are_named_with_the_reason():
    report = full()
    reason = "output-scale was left out: no tensors were found."
    report.extras["audit"]["left_out"] = [reason]
    assert reason in Text(render(report.to_dict())).text.split("Audit:")[1]


def test_a_trustworthy_measure_may_move_by_something_else():
    report = full()
    report.extras["audit"]["rows"] += [
        audit_row(REQUESTS[1], "branch-split", False, 1.0, 1.03, "moves")
    ]
    text = Text(render(report.to_dict())).text
    assert "did not move by rescaling branch-split: ×1.03" in text
    headline = verdict(report.to_dict())[1]
    assert any("Rescaling did not move normalized-sharpness" in one for one in headline)


def test_logarithms_move_by_a_difference():
    report = full()
    row = audit_row(REQUESTS[0], "node-rescale", False, 0.03, 1.0, "moves")
    report.extras["audit"]["rows"] = [row | {"change": "-3.51"}]
    report.extras["measures"][REQUESTS[0]]["logarithmic"] = True
    del report.extras["comparison"]
    headline, _ = verdict(report.to_dict())
    assert "moved by −3.51, which is a difference of logarithms" in headline
    assert "moved −3.51" in Text(render(report.to_dict())).text


@pytest.mark.parametrize(
    ("uncertainties", "words"),
    [
        ([None, None], "All 2 numbers can be quoted: exact up to rounding."),
        ([0.1, None], "quoted: 1 exact up to rounding, 1 with their uncertainty."),
        ([0.1, 0.2], "All 2 numbers can be quoted: each with its uncertainty."),
        ([0.1], "The number can be quoted: with its uncertainty."),
    ],
)
def test_an_uncertainty_is_promised_only_where_there_is_one(uncertainties, words):
    found = {
        f"m{place}": measurement("hessian-trace", 1.0, uncertainty=one)
        for place, one in enumerate(uncertainties)
    }
    assert words in verdict(Report(found, provenance()).to_dict())[0]


def test_cautions_come_first():
    one = measurement("hessian-trace", 0.0, details={"caution": "it was clipped."})
    report = Report({"a": one}, provenance(), {"cautions": ["No weights were given."]})
    headline, sentences = verdict(report.to_dict())
    assert headline == "No weights were given."
    assert "a: it was clipped." in sentences
    assert str(report).endswith("a: it was clipped.\nNo weights were given.")


def test_what_was_not_measured_alike_comes_first():
    report = full()
    unlike = {"what": "data", "text": "The data differ.", "decisive": True}
    report.extras["comparison"]["unlike"] = [unlike]
    assert verdict(report.to_dict())[0] == "The data differ."


def test_a_violated_claim_comes_first():
    report = full()
    del report.extras["comparison"]
    report.extras["audit"]["rows"][2]["verdict"] = "claim violated"
    headline, _ = verdict(report.to_dict())
    assert headline.startswith("A claim did not hold: normalized-sharpness")


def test_doubtful_numbers_are_told_in_words():
    headline, sentences = verdict(small().to_dict())
    assert headline.startswith("2 of 3 numbers can be quoted")
    assert sentences == ["riemannian[metric=node]: there is no second class."]


def test_an_empty_report_says_so():
    assert "Nothing was measured." in render(Report({}, provenance()).to_dict())


@pytest.mark.parametrize("status", list(Status))
def test_every_status_has_words(status):
    one = measurement("hessian-trace", None, status=status)
    render(Report({"hessian-trace": one}, provenance()).to_dict())


def test_provenance_holds_every_value_in_full():
    html = Text(render(small().to_dict())).text
    assert "hessian-trace = 11.0234 (exact; tol=0.001)" in html
    assert "00112233aabbccdd" in html


def test_the_notebook_shows_the_table_without_scripts():
    html = full()._repr_html_()
    assert "<script" not in html
    assert REQUESTS[0] in html


def test_extreme_numbers_stay_short():
    for value in (1e300, -1e-300, 123456789.0, 0.1 + 0.2, 10**14):
        assert len(number(value)) < 20
