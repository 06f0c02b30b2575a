"""Claims are judged only on twins of their kind, as precisely as the network computes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import weight_norm

import flatgauge as fg
from flatgauge import auditing
from flatgauge.judging import Case, judge
from flatgauge.measures import registry
from flatgauge.output_layer import output_scaling
from flatgauge.own_precision import own_precision

SHARPNESS = ("matrix-normalized-sharpness", "normalized-sharpness")
CLASSES = 3


class Coarse(nn.Module):
    """Normalizes in float32, as language models do, whatever its parameters are."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 5)
        self.head = nn.Linear(5, CLASSES)

    def forward(self, x):
        hidden = self.second(self.first(x).relu()).relu().float()
        return self.head(hidden.softmax(-1).to(x.dtype))


def data(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(8, *shape, generator=random, dtype=torch.float64)
    return inputs, torch.randint(0, CLASSES, (8,), generator=random)


def seeded(build, seed=0) -> nn.Module:
    torch.manual_seed(seed)
    return build().double()


def scores(objective: fg.Objective) -> torch.Tensor:
    return objective.model()(data(3)[0]).detach()


def test_a_network_that_rounds_by_itself_says_so():
    objective = fg.Objective(seeded(Coarse), data(3))
    assert own_precision(objective) == torch.float32
    report = fg.measure(objective, *SHARPNESS)
    assert report.provenance.computed_in == "float32"
    assert report.provenance.rounding == 1e-3
    assert "in parts float32" in report.sentence()
    for found in report.measurements.values():
        assert "up to the network's own rounding of 1e-07" in found.message
        assert found.uncertainty > 1e-9 * found.value


def test_constants_in_single_precision_round_nothing():
    class Positions(nn.Linear):
        def forward(self, x):
            angles = torch.arange(3, dtype=torch.float32)
            return super().forward(x * angles.cos().to(x.dtype))

    objective = fg.Objective(seeded(lambda: Positions(3, CLASSES)), data(3))
    assert own_precision(objective) == torch.float64
    assert fg.measure(objective, "hessian-trace").provenance.computed_in == ""


def test_its_rounding_is_no_violation():
    objective = fg.Objective(seeded(Coarse), data(3))
    found = fg.audit(objective, *SHARPNESS, elements=1)
    assert found.violations == []
    assert {"holds"} == {row.verdict for row in found.audit_rows if row.claimed}


def test_a_false_claim_is_caught_all_the_same(monkeypatch):
    info = registry.find_measure("hessian-trace")
    boast = replace(info, claims=lambda options, loss: {"node-rescale"})
    monkeypatch.setitem(registry._REGISTERED, "hessian-trace", boast)
    objective = fg.Objective(seeded(Coarse), data(3))
    found = auditing.audit(
        objective, "hessian-trace", elements=1, spread=2.0, sharpen_by=None
    )
    assert [row.kind for row in found.violations] == ["node-rescale"]


def test_a_twin_with_other_outputs_judges_nothing():
    objective = fg.Objective(seeded(Coarse), data(3))
    base = fg.measure(objective, "normalized-sharpness")["normalized-sharpness"]
    far = replace(base, value=2 * (base.value or 0.0))
    case = Case("normalized-sharpness", "node-rescale", True, False, missed=2e-4)
    row = judge(case, base, [far], 1e-9)
    assert row.verdict == "not judged"
    assert row.text == "not judged (the twin's outputs are off by 2e-04)"


@pytest.mark.parametrize("mode", ["train", "eval"])
def test_each_mode_of_batch_norm_has_its_own_group(mode):
    model = seeded(
        lambda: nn.Sequential(
            nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, CLASSES)
        )
    )
    objective = fg.Objective(model, data(3), mode=mode)
    found = fg.audit(objective, *SHARPNESS, elements=1)
    assert found.violations == []
    assert found.function_change["node-rescale"] < 1e-12
    assert "holds" in {row.verdict for row in found.audit_rows if row.claimed}


class TiedHead(nn.Module):
    """The head is the transposed first layer, after a norm; it has a bias of its own."""

    def __init__(self, norm: bool):
        super().__init__()
        self.first = nn.Linear(CLASSES, 4, bias=False)
        self.middle = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4) if norm else nn.Tanh()
        self.bias = nn.Parameter(torch.ones(CLASSES))
        if norm:
            nn.init.normal_(self.norm.bias)

    def forward(self, x):
        hidden = self.norm(self.middle(self.first(x).sigmoid()))
        return hidden @ self.first.weight + self.bias


@pytest.mark.parametrize(
    ("build", "names"),
    [
        (lambda: nn.Linear(3, CLASSES), {"weight", "bias"}),
        (
            lambda: nn.Sequential(nn.Tanh(), weight_norm(nn.Linear(3, CLASSES))),
            {"1.bias", "1.parametrizations.weight.original0"},
        ),
        (lambda: TiedHead(norm=True), {"norm.weight", "norm.bias", "bias"}),
        (lambda: TiedHead(norm=False), set()),
    ],
)
def test_what_scales_the_outputs_is_found_by_use(build, names):
    objective = fg.Objective(seeded(build), data(3))
    found = output_scaling(objective)
    assert set(found) == names
    twice = {n: (1 + (n in found)) * t for n, t in objective.parameters.items()}
    if found:
        moved = scores(objective.at(twice))
        torch.testing.assert_close(moved, 2 * scores(objective))
    audit = fg.audit(objective, *SHARPNESS, elements=1, sharpen_by=None)
    assert audit.violations == []
    assert ("output-scale" in audit.function_change) == bool(names)
    assert (auditing.NO_SCALING in str(audit)) == (not names)


def test_a_tensor_without_curvature_counts_as_nothing():
    """A key's bias adds the same to all scores of a query, which the softmax removes."""

    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.key, self.value = (nn.Linear(3, 3) for _ in range(3))

        def forward(self, x):
            weights = (self.query(x) @ self.key(x).mT).softmax(-1)
            return (weights @ self.value(x)).mean(1)

    objective = fg.Objective(seeded(Attention), data(5, 3))
    name = "matrix-normalized-sharpness"
    found = fg.measure(objective, name)[name]
    assert found.details["layers"]["key.bias"] == 0
    assert found.details["vanishing_tensors"] == ["key.bias"]
    assert "count as 0" in found.message
    assert found.details["layers"]["query.bias"] > 0


def test_a_network_that_cannot_be_read_is_audited_without_rescalings():
    class WritesAndDifferentiates(nn.Linear):
        def forward(self, x):
            leaf = x.detach().requires_grad_()
            (slope,) = torch.autograd.grad(leaf.square().sum(), leaf)
            slope[:, :1].mul_(2.0)
            return super().forward(slope)

    objective = fg.Objective(
        seeded(lambda: WritesAndDifferentiates(3, CLASSES)), data(3)
    )
    found = fg.audit(objective, *SHARPNESS, elements=1)
    assert found.violations == []
    assert set(found.function_change) == {"output-shift", "output-scale"}
    assert "Rescalings were left out: 'aten::mul_' in module '' writes" in str(found)
    assert found.untried


transformers = pytest.importorskip("transformers")
SIZES = {
    "vocab_size": 7, "hidden_size": 4, "intermediate_size": 5, "num_hidden_layers": 1,
    "num_attention_heads": 2, "num_key_value_heads": 1, "use_cache": False,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip


def t5() -> nn.Module:
    config = transformers.T5Config(
        vocab_size=7, d_model=4, d_kv=2, d_ff=5, num_layers=1, num_heads=2,
        use_cache=False, decoder_start_token_id=0,
    )  # fmt: skip
    return transformers.T5ForConditionalGeneration(config)


@pytest.mark.slow
@pytest.mark.parametrize(
    "family", ["Llama", "Mistral", "Qwen2", "Gemma", "Olmo2", "T5"]
)
def test_language_models_are_not_accused(family):
    def build() -> nn.Module:
        if family == "T5":
            return t5()
        config = getattr(transformers, f"{family}Config")
        more = {"head_dim": 2} if family == "Gemma" else {}
        return transformers.AutoModelForCausalLM.from_config(config(**SIZES, **more))

    model = seeded(build)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    ids = 1 + torch.arange(12).reshape(3, 4) * 5 % 6
    batch = {"input_ids": ids, "labels": 1 + ids**2 % 6}
    if family == "T5":
        batch["decoder_input_ids"] = ids.flip(1)
    objective = fg.Objective(model, [batch])
    assert own_precision(objective) == torch.float32
    found = fg.audit(objective, *SHARPNESS, elements=1)
    assert found.violations == []
    assert any(row.verdict == "holds" for row in found.audit_rows)
