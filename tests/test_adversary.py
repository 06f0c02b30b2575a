from __future__ import annotations

import pytest
import torch
from support.cases import CASES, Case, _normal, mlp
from torch import nn

import flatgauge as fg
from flatgauge import adversary
from flatgauge.adversary import sharpened
from flatgauge.errors import OptionError, SymmetryError
from flatgauge.output_changes import output_change


@pytest.mark.parametrize("case", ["mlp", "lenet", "resnet", "gpt", "attention"])
def test_the_same_function_ten_thousand_times_sharper(case: str):
    objective = CASES[case].objective()
    twin = objective.with_model(fg.sharpen(objective, 1e4))
    assert output_change(objective, twin) < 1e-10
    name = "hessian-spectral-norm[tol=1e-6]"
    ratio = fg.measure(twin, name)[name].value / fg.measure(objective, name)[name].value
    assert ratio >= 1e4


def test_the_model_returned_is_new_and_can_be_trained():
    objective = CASES["mlp"].objective()
    before = {n: t.clone() for n, t in objective.parameters.items()}
    model = fg.sharpen(objective, 10.0)
    assert isinstance(model, nn.Sequential)
    assert all(parameter.requires_grad for parameter in model.parameters())
    for name, tensor in objective.parameters.items():
        assert torch.equal(tensor, before[name])


def test_what_cannot_be_sharpened_is_refused():
    with pytest.raises(SymmetryError, match="cannot be sharpened"):
        fg.sharpen(CASES["tanh"].objective(), 10.0)
    with pytest.raises(OptionError, match="at least 1"):
        fg.sharpen(CASES["mlp"].objective(), 0.5)


def test_the_flattest_twin_of_a_chain_has_the_closed_form_trace():
    """K (Π t_k)^{1/K} for layer rescalings of a bias-free chain of K tensors."""
    case = Case("chain", lambda: mlp(4, 12, 10, 3, bias=False), _normal(4))
    objective = case.objective()
    traces = [float(h.sum()) for h in fg.hessian_diagonal(objective).values.values()]
    product = torch.tensor(traces, dtype=torch.float64).prod()
    expected = len(traces) * float(product) ** (1 / len(traces))
    twin = objective.with_model(fg.flattest(objective, "layer-rescale"))
    assert fg.measure(twin, "hessian-trace")["hessian-trace"].value == pytest.approx(
        expected, rel=1e-6
    )
    assert twin.value() == pytest.approx(objective.value(), rel=1e-12)
    nodes = objective.with_model(fg.flattest(objective, "node-rescale"))
    found = fg.measure(nodes, "hessian-trace")["hessian-trace"].value
    assert found <= expected * (1 + 1e-6)


def test_negative_curvature_has_no_flattest_twin():
    with pytest.raises(SymmetryError, match="no smallest value"):
        fg.flattest(CASES["attention"].objective())


@pytest.mark.slow
def test_a_wide_resnet_is_sharpened():
    from support.models import wide_resnet

    torch.manual_seed(0)
    model = wide_resnet().double()
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)
            module.running_var.uniform_(0.5, 2.0)
    data = (torch.randn(4, 3, 16, 16).double(), torch.tensor([0, 1, 2, 3]))
    found = sharpened(fg.Objective(model, data), 1e4)
    assert found.ratio >= 1e4
    assert found.output_change < 1e-10


@pytest.mark.slow
def test_a_hugging_face_gpt2_is_sharpened():
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=97, n_positions=16, n_embd=32, n_layer=2, n_head=4, use_cache=False
    )
    model = GPT2LMHeadModel(config).double().eval()
    tokens = torch.randint(0, 97, (4, 12))
    batch = {"input_ids": tokens, "labels": tokens}
    found = sharpened(fg.Objective(model, [batch]), 1e4)
    assert found.ratio >= 1e4
    assert found.output_change < 1e-10


def test_further_generators_are_tried_where_the_best_are_not_curved(monkeypatch):
    tried = []
    own = adversary._curved

    def first_fails(*given):
        tried.append(given[-1])
        return own(*given) if len(tried) > 1 else []

    monkeypatch.setattr(adversary, "_curved", first_fails)
    monkeypatch.setattr(adversary, "CANDIDATES", 2)
    monkeypatch.setattr(adversary, "RESCALINGS", ["node-rescale"])
    found = adversary.sharpened(CASES["mlp"].objective(), 10.0)
    assert found.ratio >= 10
    assert len(tried) == 2
    assert not set(tried[0]) & set(tried[1])
