"""The report as a file: what the schema says of it, and files of older versions."""

from __future__ import annotations

import json
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest
from support.cases import CASES
from support.pages import small
from support.schemas import violations

import flatgauge as fg
from flatgauge.auditing import AuditRow
from flatgauge.comparison import ComparisonRow
from flatgauge.report.page import render
from flatgauge.results import SCHEMA, Cost, Measurement, Provenance, Report
from flatgauge.spectrum import spectrum_data
from flatgauge.vocabulary import Kind, Status, Verdict

PATH = Path(__file__).parents[2] / "docs" / "report.schema.json"
DESCRIBED = json.loads(PATH.read_text(encoding="utf-8"))
PARTS = DESCRIBED["$defs"]
OLD = Path(__file__).parent / "before_the_loss_field.json"
# What files of the same schema may lack, since it came later.
LATER = {(Measurement, "loss")}


def check(plain: dict[str, Any]) -> list[str]:
    return list(violations(plain, DESCRIBED, DESCRIBED))


@pytest.mark.parametrize(
    ("described", "kind"),
    [
        (PARTS["provenance"], Provenance),
        (PARTS["cost"], Cost),
        (PARTS["measurement"], Measurement),
        (PARTS["audit"]["properties"]["rows"]["items"], AuditRow),
        (PARTS["comparison"]["properties"]["rows"]["items"], ComparisonRow),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_every_field_is_described(described: dict[str, Any], kind: type):
    assert list(described["properties"]) == [one.name for one in fields(kind)]
    needed = [
        one.name
        for one in fields(kind)
        if one.default is one.default_factory is MISSING
    ]
    needed = [name for name in needed if (kind, name) not in LATER]
    assert described.get("required", []) == needed


def test_the_words_are_those_of_the_vocabulary():
    assert DESCRIBED["properties"]["schema"]["const"] == SCHEMA
    assert PARTS["kind"]["enum"] == list(Kind)
    assert PARTS["verdict"]["enum"] == list(Verdict)
    assert PARTS["status"]["enum"] == [one.name for one in Status]


def test_real_reports_are_as_described():
    objective = CASES["mlp"].objective()
    other = objective.at({n: 1.5 * t for n, t in objective.parameters.items()})
    asked = ("hessian-trace", "normalized-sharpness", "epsilon-sharpness")
    spectrum = fg.measure_spectrum(objective, 2, probes=2, steps=5)
    group = fg.symmetries(objective)
    report = fg.audit(objective, *asked, elements=1).report.with_extras(
        comparison=fg.compare({"a": objective, "b": other}, *asked).to_dict(),
        spectrum=spectrum_data(spectrum.density, spectrum.largest, spectrum.smallest),
        landscapes=[fg.landscape(objective, points=3).to_dict()],
        symmetries={"dimension": group.dimension, "text": str(group)},
        accuracies={"a": 0.5, "b": 0.75},
        cautions=["The weights are random."],
        made="Both were trained alike.",
    )
    plain = json.loads(json.dumps(report.to_dict()))
    assert check(plain) == []
    described = DESCRIBED["properties"]["extras"]["properties"]
    assert set(described) - set(plain["extras"]) == {"budget"}


def test_a_report_in_limited_time_is_as_described():
    objective = CASES["mlp"].objective()
    report = fg.measure(objective, "hessian-trace", budget="1h", resamples=1)
    plain = report.to_dict()
    assert check(plain) == []
    assert "budget" in plain["extras"]
    assert plain["measurements"]["hessian-trace"]["data_uncertainty"] is not None


def test_the_check_sees_what_is_wrong():
    plain = json.loads(json.dumps(small().to_dict()))
    assert check(plain) == []
    one = plain["measurements"]["hessian-trace"]
    one |= {"status": "FINE", "value": True, "colour": "red"}
    del one["message"]
    plain["schema"] = "other"
    assert [found.rpartition("hessian-trace")[2] for found in check(plain)] == [
        "report.schema is 'other'",
        " lacks message",
        ".value is bool",
        ".status is 'FINE'",
        " has colour",
    ]


def test_old_files_still_open():
    plain = json.loads(OLD.read_text(encoding="utf-8"))
    assert check(plain) == []
    report = Report.from_json(OLD)
    assert {request: one.loss for request, one in report.measurements.items()} == {
        "hessian-trace": "cross-entropy",
        "normalized-sharpness": "normalized-cross-entropy",
        # Its details held the value of the loss under that name.
        "riemannian-sharpness[metric=node]": "cross-entropy",
        "fisher-rao-norm": "cross-entropy",
    }
    again = report.to_dict()
    assert check(again) == []
    assert Report.from_dict(again) == report
    assert render(plain) == render(again)
