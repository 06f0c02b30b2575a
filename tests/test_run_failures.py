"""An error inside one measure: it is FAILED, it says why, and the others stand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch
from support.cases import CASES

import flatgauge as fg
from flatgauge.errors import NotConvergedError, OptionError
from flatgauge.measures import registry
from flatgauge.measures.registry import Outcome, measure
from flatgauge.report.page import fragment, render

ERRORS = {
    "torch": RuntimeError("mat1 and mat2 shapes cannot be multiplied\nmore lines"),
    "option": OptionError("hessian= is of another objective: build it from this one."),
    "memory": torch.OutOfMemoryError("CUDA out of memory."),
    "host memory": RuntimeError("DefaultCPUAllocator: can't allocate memory"),
    "numpy": np.linalg.LinAlgError("SVD did not converge"),
    "silent": AssertionError(),
}
BROKEN, GOOD = "broken", "hessian-trace"


@pytest.fixture
def breaks(monkeypatch):
    """A measure that ends as the test says."""
    fg.list_measures()
    monkeypatch.setattr(registry, "_REGISTERED", dict(registry._REGISTERED))

    def declare(end):
        @measure(
            name=BROKEN,
            title="Broken",
            formula="1 / 0",
            reference="none",
            invariant_to=lambda options, loss: {"permutation"},
            flatter="smaller",
            cost="nothing",
        )
        def broken(work, *, target: float = 1.0) -> Outcome:
            if isinstance(end, BaseException):
                raise end
            return Outcome(end, fg.Status.EXACT, "")

    return declare


@pytest.mark.parametrize("error", ERRORS.values(), ids=ERRORS)
def test_the_other_measures_stand(error, breaks, tmp_path):
    breaks(error)
    objective = CASES["mlp"].objective()
    report = fg.measure(objective, BROKEN, GOOD)
    found = report[BROKEN]
    assert found.status is fg.Status.FAILED
    assert not found.status.trusted
    assert found.value is None
    assert str(error).split("\n")[0] in found.message
    assert ("smaller batches" in found.message) == ("memory" in str(error))
    assert "\n" not in found.message
    assert report[GOOD].status is fg.Status.EXACT
    assert report[GOOD].value == fg.measure(objective, GOOD)[GOOD].value
    assert f"{BROKEN}: {found.message}" in str(report)
    report.to_json(tmp_path / "report.json")
    assert fg.Report.from_json(tmp_path / "report.json") == report
    for page in (render(report.to_dict()), fragment(report.to_dict())):
        assert "failed" in page
    with pytest.raises(NotConvergedError, match=BROKEN):
        fg.measure(objective, BROKEN, GOOD, strict=True)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_what_is_no_number_is_no_result(value, breaks):
    breaks(value)
    report = fg.measure(CASES["mlp"].objective(), BROKEN, GOOD)
    assert report[BROKEN].status is fg.Status.FAILED
    assert str(value) in report[BROKEN].message
    assert report[GOOD].status is fg.Status.EXACT


def test_an_audit_and_a_comparison_are_not_lost(breaks):
    breaks(RuntimeError("broken on purpose"))
    objective = CASES["mlp"].objective()
    audit = fg.audit(objective, BROKEN, GOOD, elements=1, sharpen_by=None)
    verdicts = {row.measure: row.verdict for row in audit.audit_rows}
    assert verdicts[BROKEN] == "not judged"
    assert "not judged (failed)" in str(audit)
    assert verdicts[GOOD] != "not judged"
    assert json.dumps(audit.report.to_dict())
    assert render(audit.report.to_dict())
    found = fg.compare({"a": objective, "b": objective}, BROKEN, GOOD)
    assert found.comparison_rows[0].statuses == {"a": "FAILED", "b": "FAILED"}
    assert found.comparison_rows[0].flatter is None
    assert found.comparison_rows[1].values["a"] is not None
    assert "failed" in str(found)


def test_an_interruption_is_no_failure(breaks):
    breaks(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        fg.measure(CASES["mlp"].objective(), BROKEN)


def test_options_are_refused_before_anything_is_computed(breaks):
    breaks(AssertionError("computed"))
    told = []
    with pytest.raises(OptionError, match="target= is 'abc': give a finite number"):
        fg.measure(
            CASES["mlp"].objective(),
            GOOD,
            f"{BROKEN}[target=abc]",
            progress=lambda *given: told.append(given),
        )
    assert not told
