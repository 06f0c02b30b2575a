from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from support.cases import CASES
from support.pages import measurement
from torch import nn

import flatgauge as fg
from flatgauge import auditing
from flatgauge.judging import Case, judge
from flatgauge.measures import registry
from flatgauge.report.audit_table import movements


@pytest.fixture(scope="module")
def found() -> fg.Audit:
    return fg.audit(CASES["mlp"].objective(), elements=1, spread=1.0)


def test_claims_hold_and_the_rest_may_move(found):
    verdicts = {(row["measure"], row["kind"]): row for row in found.rows()}
    assert verdicts["normalized-sharpness", "node-rescale"]["verdict"] == "holds"
    trace = verdicts["hessian-trace", "node-rescale"]
    assert trace["verdict"] == "moves"
    assert not trace["claimed"]
    assert found.violations == []
    assert set(found.function_change) >= {"layer-rescale", "node-rescale"}
    assert found.function_change["node-rescale"] < 1e-12


def test_the_sharpened_twin_is_measured_with_everything(found):
    ratios = found.sharpened["ratios"]
    assert found.sharpened["ratio"] >= 1e3
    assert ratios["hessian-spectral-norm"] >= 1e3
    assert ratios["normalized-sharpness"] == pytest.approx(1.0, rel=1e-9)


def test_it_is_in_the_report_and_can_be_read(found, tmp_path):
    assert found.report.extras["audit"] == found.to_dict()
    assert "audit" not in found.base.extras
    found.report.to_json(tmp_path / "audit.json")
    assert "moves ×" in str(found)


def test_a_false_claim_is_called_a_violation(monkeypatch):
    info = registry.find_measure("hessian-trace")
    boast = replace(info, claims=lambda options, loss: {"node-rescale"})
    monkeypatch.setitem(registry._REGISTERED, "hessian-trace", boast)
    objective = CASES["mlp"].objective()
    found = auditing.audit(objective, "hessian-trace", elements=1, sharpen_by=None)
    assert [row.kind for row in found.violations] == ["node-rescale"]
    assert "please report this" in found.violations[0].text


def test_batch_norm_up_to_eps_has_rows_of_its_own():
    found = fg.audit(
        CASES["resnet"].objective(), "normalized-sharpness", elements=1, sharpen_by=None
    )
    kinds = {(row["kind"], row["exact"]): row for row in found.rows()}
    assert kinds["node-rescale", True]["verdict"] == "holds"
    assert kinds["node-rescale", False]["verdict"] != "claim violated"
    assert not kinds["node-rescale", False]["claimed"]


@pytest.mark.parametrize("groups", [(2, 2), (1, 4)])
def test_grouped_convolutions_are_audited_without_their_permutations(groups):
    first, second = groups
    model = nn.Sequential(
        nn.Conv2d(2, 4, 2, groups=first),
        nn.ReLU(),
        nn.Conv2d(4, 4, 2, groups=second),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 5),
        nn.ReLU(),
        nn.Linear(5, 3),
    )
    data = (torch.randn(4, 2, 4, 4).double(), torch.randint(0, 3, (4,)))
    objective = fg.Objective(model.double(), data)
    found = fg.audit(objective, "hessian-trace", elements=1, sharpen_by=None)
    assert found.violations == []
    assert found.function_change["permutation"] < 1e-12
    assert "branch-split" in found.function_change


def test_networks_of_grouped_convolutions_alone_have_no_permutations():
    model = nn.Sequential(
        nn.Conv1d(4, 4, 2, groups=2), nn.ReLU(), nn.Conv1d(4, 2, 2), nn.Flatten()
    )
    data = (torch.randn(3, 4, 4).double(), torch.randn(3, 4).double())
    objective = fg.Objective(model.double(), data, "mse")
    found = fg.audit(objective, "hessian-trace", elements=1, sharpen_by=None)
    assert "permutation" not in found.function_change


def test_every_measure_is_tried_on_the_twin_made_on_purpose(found):
    rows = {row.measure: row for row in found.audit_rows if row.adversarial}
    assert set(rows) == set(found.base)
    assert rows["hessian-trace"].verdict == "moves"
    assert rows["normalized-sharpness"].verdict == "holds"
    assert rows["hessian-trace"].ratio_max == found.sharpened["ratios"]["hessian-trace"]
    assert f"{rows['hessian-trace'].kind} (on purpose)" in str(found)


def test_random_elements_miss_what_the_worst_one_does():
    objective = CASES["mlp"].objective()
    found = fg.audit(objective, "hessian-trace", elements=1, spread=1e-12)
    [twin] = [row for row in found.audit_rows if row.adversarial]
    kinds = {row.kind: row for row in found.audit_rows if not row.adversarial}
    assert kinds["node-rescale"].verdict == "stays"
    assert twin.verdict == "moves"
    [row] = movements(found.report.to_dict()).values()
    assert row["moved"]
    assert row["tried"]


def test_without_that_twin_it_says_so():
    tanh = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    data = (torch.randn(6, 3).double(), torch.randint(0, 2, (6,)))
    for objective, more in (
        (fg.Objective(tanh, data), {}),
        (CASES["mlp"].objective(), {"sharpen_by": None}),
    ):
        found = fg.audit(objective, "hessian-trace", elements=1, **more)
        assert found.sharpened is None
        assert found.untried in str(found)
        assert not any(row.adversarial for row in found.audit_rows)
    assert found.untried == auditing.LEFT_OUT


def test_logarithms_are_told_by_their_difference(found):
    name = "spectral-norm-product"
    base = found.base[name].value
    [row] = [
        r for r in found.audit_rows if r.measure == name and r.kind == "node-rescale"
    ]
    assert row.verdict == "moves"
    moved = max((math.log(r) for r in (row.ratio_min, row.ratio_max)), key=abs)
    assert row.change == f"{moved:+.3g}"
    assert row.text == f"moves {row.change} (not claimed)"
    assert math.isfinite(base)


def test_a_large_move_is_told_though_an_estimate_did_not_converge():
    case = Case("hessian-trace", "node-rescale", True, False, True)
    base = measurement("hessian-trace", 1.0, uncertainty=0.1, options={})
    far = replace(
        base, value=14_500.0, uncertainty=900.0, status=fg.Status.NOT_CONVERGED
    )
    assert judge(case, base, [far], 1e-3).text == (
        "moves ×1.45e+04 (not claimed; not converged)"
    )
    near = replace(far, value=1.5)
    assert judge(case, base, [near], 1e-3).verdict == "not judged"
    unknown = replace(far, uncertainty=None)
    assert judge(case, base, [unknown], 1e-3).verdict == "not judged"


@pytest.mark.slow
def test_what_random_elements_of_a_bert_hardly_move_moves_on_purpose():
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=32,
            max_position_embeddings=16,
            num_labels=3,
        )
    )
    batch = {
        "input_ids": torch.randint(1, 50, (8, 10)),
        "labels": torch.randint(0, 3, (8,)),
    }
    name = "hessian-spectral-norm"
    found = fg.audit(fg.Objective(model, [batch]), name, elements=1)
    rows = {
        row.adversarial: row for row in found.audit_rows if row.kind == "layer-rescale"
    }
    assert rows[False].ratio_max < 2
    assert rows[True].ratio_max > 1e3
    assert movements(found.report.to_dict())[name]["moved"]
