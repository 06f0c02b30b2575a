from __future__ import annotations

import math

import pytest
import torch
from support.cases import CASES, known_network, mlp
from torch import nn

import flatgauge as fg
from flatgauge.curvature import plan
from flatgauge.errors import NotConvergedError, OptionError
from flatgauge.measures.registry import Outcome, find_measure
from flatgauge.requests import DEFAULT
from flatgauge.run import _is_hidden
from flatgauge.solvers.lanczos import largest_eigenvalue
from flatgauge.vectors import size


def test_the_default_set_is_keyed_by_its_requests():
    report = fg.measure(CASES["mlp"].objective())
    assert list(report) == list(DEFAULT)
    for one in report.measurements.values():
        assert one.value is not None
        assert math.isfinite(one.value)
        assert one.provenance.samples == 6


def test_a_report_survives_json(tmp_path):
    report = fg.measure(CASES["mlp"].objective(), "normalized-sharpness", seed=3)
    report.to_json(tmp_path / "report.json")
    again = fg.Report.from_json(tmp_path / "report.json")
    assert again == report
    assert again["normalized-sharpness"].provenance.seed == 3
    assert "normalized-sharpness" in str(again)


def test_the_cost_names_the_route_and_its_rivals(monkeypatch, tmp_path):
    monkeypatch.setattr(plan, "pays", lambda device: True)
    monkeypatch.setattr(plan, "graph_room", lambda *_: 0.0)
    report = fg.measure(
        CASES["mlp"].objective(), "hessian-spectral-norm", "spectral-norm-product"
    )
    route = report["hessian-spectral-norm"].cost.notes["routes"]["cross-entropy"]
    assert route["route"] in route["seconds"]
    assert set(route["seconds"]) == {"double-backward", *route["disagreement"]}
    assert max(route["disagreement"].values()) < 1e-9
    assert report["spectral-norm-product"].cost.notes == {}
    report.to_json(tmp_path / "report.json")
    assert fg.Report.from_json(tmp_path / "report.json") == report


def test_a_measurement_is_no_number():
    found = fg.measure(CASES["mlp"].objective(), "hessian-trace")["hessian-trace"]
    with pytest.raises(TypeError):
        float(found)


@pytest.mark.parametrize(
    ("request_", "options", "message"),
    [
        ("sharpness", {}, "'sharpness' is not known; there are: epsilon-sharpness"),
        ("hessian-trace[probes=3]", {}, "no option 'probes'; its options are: target"),
        ("hessian-trace[target]", {}, "without a value"),
        ("hessian-trace[", {}, "is no request"),
        ("hessian-trace", {"normalized-sharpness": {"lam": 1.0}}, "was not asked for"),
        ("hessian-trace", {"nobody": {}}, "'nobody' is not known"),
        ("riemannian-spectral-norm[metric=fisher]", {}, "metric= is 'fisher': use"),
        ("normalized-sharpness[surrogate=no]", {}, "use 'auto' or 'objective'"),
    ],
)
def test_unknown_names_and_options_are_refused(request_, options, message):
    with pytest.raises(OptionError, match=message.replace("[", r"\[")):
        fg.measure(CASES["mlp"].objective(), request_, options=options)


@pytest.mark.parametrize(
    "name",
    [
        "hessian-spectral-norm[max_steps=2]",
        "riemannian-spectral-norm[max_steps=2]",
        "riemannian-spectral-norm[solver=power,max_steps=3]",
        "epsilon-sharpness[steps=1,restarts=1,epsilon=0.5]",
    ],
)
def test_too_few_steps_say_so_and_strict_raises(name: str):
    objective = CASES["gelu"].objective()
    found = fg.measure(objective, name)[name]
    assert found.status is fg.Status.NOT_CONVERGED
    assert "steps" in found.message
    with pytest.raises(NotConvergedError, match=name.split("[")[0]):
        fg.measure(objective, name, strict=True)


def test_one_unconverged_run_does_not_spoil_another():
    names = ("hessian-spectral-norm[max_steps=2]", "hessian-spectral-norm")
    report = fg.measure(CASES["gelu"].objective(), *names)
    assert report[names[0]].status is fg.Status.NOT_CONVERGED
    assert report[names[1]].status is fg.Status.CONVERGED


def test_not_applicable_comes_with_its_reason():
    x, y = torch.randn(8, 4), torch.randint(0, 2, (8,))
    two = fg.Objective(mlp(4, 5, 2), (x, y), dtype=torch.float64)
    found = fg.measure(two.with_loss("cross-entropy"), "normalized-sharpness")
    assert found["normalized-sharpness"].loss == "cross-entropy"
    custom = fg.Objective(
        mlp(4, 5, 1),
        (x, torch.randn(8, 1)),
        lambda out, target: (out - target).square().mean(),
    )
    fisher = fg.measure(custom, "fisher-rao-norm")["fisher-rao-norm"]
    assert fisher.status is fg.Status.NOT_APPLICABLE
    assert fisher.value is None
    assert "a loss per row" in fisher.message
    bound = fg.measure(custom, "pac-bayes-bound")["pac-bayes-bound"]
    assert bound.status is fg.Status.NOT_APPLICABLE


def negative() -> fg.Objective:
    """A network whose dominant curvature is negative: loss −(Σ_k f_k)² / 2."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)).double()
    data = (torch.randn(6, 3).double(), torch.zeros(6, 2))
    return fg.Objective(model, data, lambda out, _: -(out.sum(1) ** 2).mean() / 2)


def test_dominant_negative_curvature():
    objective = negative()
    dense = fg.Hessian(objective).to_dense()
    s = torch.cat([t.norm().expand(t.numel()) for t in objective.parameters.values()])
    truth = torch.linalg.eigvalsh(s[:, None] * dense * s)
    assert -truth[0] > 1.5 * truth[-1].abs()
    name = "riemannian-spectral-norm[tol=1e-8]"
    found = fg.measure(objective, name)[name]
    assert found.value == pytest.approx(float(truth[-1]), rel=1e-6)
    power = "riemannian-spectral-norm[solver=power,tol=1e-6,max_steps=2000]"
    tried = fg.measure(objective, power)[power]
    assert tried.status is fg.Status.NOT_CONVERGED
    assert "negative" in tried.message


def test_shared_work_is_done_once():
    objective = known_network("B/ce")
    report = fg.measure(objective, "hessian-spectral-norm", "epsilon-sharpness")
    assert report["hessian-spectral-norm"].cost.products > 0
    direct = largest_eigenvalue(fg.Hessian(objective))
    found = report["hessian-spectral-norm"].value
    assert found == pytest.approx(direct.value, rel=1e-9)


def test_products_for_a_diagonal_are_counted():
    objective = CASES["gelu"].objective()
    report = fg.measure(objective, "hessian-trace")
    assert report["hessian-trace"].cost.products == size(objective.parameters)


@pytest.mark.parametrize("name", ["hessian-spectral-norm", "riemannian-spectral-norm"])
def test_a_converged_smallest_eigenvalue_continues_the_run(name: str):
    objective = known_network("B/ce")
    short = fg.measure(objective, name)[name]
    full = fg.measure(objective, name, options={name: {"full": True}})[name]
    assert full.details["smallest_status"] == "CONVERGED"
    assert full.details["steps"] >= short.details["steps"]
    bound = short.uncertainty or 0.0
    assert abs(full.value - short.value) <= bound
    if name == "hessian-spectral-norm":
        # Of which so many made the matrix that the others read.
        made = size(objective.parameters)
        assert full.cost.products == full.details["steps"] + made


def test_progress_is_told():
    seen: list[tuple[str, int, int]] = []
    fg.measure(
        CASES["mlp"].objective(),
        "hessian-trace",
        "spectral-norm-product",
        progress=lambda *given: seen.append(given),
    )
    assert seen == [("hessian-trace", 0, 2), ("spectral-norm-product", 1, 2)]


def test_a_number_that_rounding_hides_is_not_called_exact():
    """A small regression BERT: the terms that cancel are larger than its Hessian."""
    transformers = pytest.importorskip("transformers")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = transformers.BertForSequenceClassification(
            transformers.BertConfig(
                vocab_size=20, hidden_size=4, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=6, max_position_embeddings=8, num_labels=1,
            )
        ).eval()  # fmt: skip
        tokens = torch.randint(1, 20, (6, 5))
        data = [{"input_ids": tokens, "labels": torch.randn(6, 1)}]
    coarse, fine = (
        fg.measure(fg.Objective(model, data, "mse", dtype=dtype), "hessian-trace")
        for dtype in (torch.float32, torch.float64)
    )
    assert fine["hessian-trace"].status is fg.Status.EXACT
    one = coarse["hessian-trace"]
    assert one.uncertainty > 0.1 * abs(one.value)
    assert one.status is fg.Status.NOT_CONVERGED
    assert "use dtype=torch.float64" in one.message


@pytest.mark.parametrize(
    ("value", "uncertainty", "hidden"),
    [(1.0, 0.2, True), (1.0, 0.05, False), (0.0, 1e-9, False), (0.0, 9.0, True),
     (1.0, None, False), (None, None, False)],
)  # fmt: skip
def test_what_rounding_hides(value, uncertainty, hidden):
    objective = fg.Objective(mlp(3, 3).double(), (torch.eye(3), torch.arange(3)))
    found = Outcome(value, fg.Status.EXACT, "", uncertainty)
    assert _is_hidden(found, find_measure("hessian-trace"), objective) is hidden
