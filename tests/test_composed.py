"""Functions without second derivatives, and code that was compiled, can be measured."""

from __future__ import annotations

import pytest
import torch
from support.dense import dense_hessian
from torch import nn
from torch.nn import functional
from torch.nn.utils import parametrizations

import flatgauge as fg
from flatgauge.composed import embedding_bag, hardsigmoid
from flatgauge.isolation import isolated
from flatgauge.uses import uses_of


def batch(*shape: int) -> tuple[torch.Tensor, torch.Tensor]:
    random = torch.Generator().manual_seed(0)
    inputs = torch.randn(6, *shape, generator=random, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (6,), generator=random)


def between(middle: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), middle, nn.Linear(4, 3)).double()


def test_hardsigmoid_is_torchs():
    x = torch.linspace(-4, 4, 33, dtype=torch.float64)
    torch.testing.assert_close(hardsigmoid(x), functional.hardsigmoid(x))
    changed = x.clone()
    assert hardsigmoid(changed, inplace=True) is changed
    torch.testing.assert_close(changed, functional.hardsigmoid(x))


@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("padding", [None, 2, -1])
@pytest.mark.parametrize("offsets", [None, [0, 3, 3, 7], [0, 4, 12]])
def test_bags_are_torchs(mode, padding, offsets):
    torch.manual_seed(0)
    weight = torch.randn(5, 3).double()
    words = torch.randint(0, 5, (4, 3))
    options = {"mode": mode, "padding_idx": padding}
    if offsets is not None:
        words, options["offsets"] = words.flatten(), torch.tensor(offsets)
        options["include_last_offset"] = offsets[-1] == 12
    if mode == "sum":
        options["per_sample_weights"] = torch.randn(words.shape).double()
    expected = functional.embedding_bag(words, weight, **options)
    torch.testing.assert_close(embedding_bag(words, weight, **options), expected)


def test_what_bags_do_on_the_side_is_left_to_torch():
    weight = torch.full((3, 2), 5.0)
    found = embedding_bag(torch.tensor([[0, 1]]), weight, max_norm=1.0)
    assert float(found.norm()) == pytest.approx(1.0)
    assert weight[2].tolist() == [5.0, 5.0]


def test_torchs_functions_are_put_back():
    before = functional.hardsigmoid, functional.embedding_bag, functional.group_norm
    with isolated(torch.device("cpu")):
        assert functional.hardsigmoid is hardsigmoid
    after = functional.hardsigmoid, functional.embedding_bag, functional.group_norm
    assert after == before


def test_gains_of_a_group_norm_whose_channels_come_last():
    """Torch's kernel ends the process here, where nothing asks for the input's slope."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.GroupNorm(2, 4), nn.Flatten(), nn.Linear(16, 3)).double()
    inputs, targets = batch(4, 2, 2)
    last = inputs.to(memory_format=torch.channels_last)
    found, expected = (
        fg.Objective(model, (x, targets), params=lambda name: name.startswith("0."))
        for x in (last, inputs)
    )
    for name, slope in found.gradient().items():
        torch.testing.assert_close(slope, expected.gradient()[name])


def test_a_single_sample_behind_a_batch_norm_has_the_gradient_of_its_batch():
    """Torch's kernel is wrong where channels of the gradient come last by strides alone."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(2, 5, 1), nn.BatchNorm2d(5), nn.Flatten(2)
    ).double()  # fmt: skip
    inputs, targets = torch.randn(4, 2, 2, 2).double(), torch.arange(4) % 4
    seen = torch.randn(1, 4, 5).double()

    def forward(model, batch):
        return (model(batch[0]).transpose(1, 2) * seen).sum(2)

    whole, alone = (
        fg.Objective(model, (inputs, targets), batch_size=size, forward=forward)
        for size in (4, 1)
    )
    for name, slope in alone.gradient().items():
        torch.testing.assert_close(slope, whole.gradient()[name])
    for diagonal in (False, True):
        request = f"fisher-rao-norm[diagonal={diagonal}]"
        one, other = (fg.measure(o, request)[request].value for o in (whole, alone))
        assert one == pytest.approx(other, rel=1e-12)


def test_a_grouped_convolution_with_weight_norm():
    """As the positions of wav2vec2: one gain for each tap.

    Each of the 3 taps' directions may be rescaled, and all gains against what comes in.
    """
    torch.manual_seed(0)
    convolution = nn.Conv1d(4, 4, 3, padding=1, groups=2)
    model = nn.Sequential(
        nn.Conv1d(2, 4, 1),
        nn.ReLU(),
        parametrizations.weight_norm(convolution, dim=2),
        nn.GELU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(4, 3),
    )
    objective = fg.Objective(model.double(), batch(2, 5))
    report = fg.measure(objective, "hessian-trace", "normalized-sharpness")
    assert all(one.status.trusted for one in report.measurements.values())
    expected = float(dense_hessian(objective).trace())
    assert report["hessian-trace"].value == pytest.approx(expected, rel=1e-9)
    group = fg.symmetries(objective)
    assert group.dimension == 4
    assert group.error < 1e-13


@pytest.mark.parametrize("middle", [nn.Hardsigmoid(), nn.Hardswish(inplace=True)])
def test_hard_activations_have_second_derivatives(middle):
    """Against the formula from scratch, at curved, flat and straight stretches."""

    class FromScratch(nn.Module):
        def forward(self, x):
            hard = ((x + 3) / 6).clamp(0, 1)
            return hard if isinstance(middle, nn.Hardsigmoid) else x * hard

    given = fg.Objective(between(middle), batch(3))
    plain = fg.Objective(between(FromScratch()), batch(3))
    torch.testing.assert_close(dense_hessian(given), dense_hessian(plain))
    report = fg.measure(given)
    assert all(one.status.trusted for one in report.measurements.values())
    expected = fg.measure(plain, "hessian-trace")["hessian-trace"].value
    assert report["hessian-trace"].value == pytest.approx(expected, rel=1e-9)


def test_bags_are_measured_and_scaled():
    torch.manual_seed(0)
    words = torch.randint(0, 7, (6, 5))
    model = nn.Sequential(nn.EmbeddingBag(7, 4), nn.ReLU(), nn.Linear(4, 3)).double()
    objective = fg.Objective(model, (words, batch(3)[1]))
    report = fg.measure(objective)
    assert all(one.status.trusted for one in report.measurements.values())
    group = fg.symmetries(objective)
    assert (group.dimension, group.complete) == (4, True)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("part", ["whole", "inside", "in place"])
def test_what_was_compiled_is_measured_as_it_was_written(part):
    torch.manual_seed(0)
    eager = between(nn.ReLU())
    names = ["hessian-trace", "hessian-spectral-norm", "fisher-rao-norm"]
    expected = fg.measure(fg.Objective(eager, batch(3)), names)
    model = between(nn.ReLU())
    if part == "whole":
        model = torch.compile(model)
    elif part == "inside":
        model[0] = torch.compile(model[0])
    else:
        model.compile()
    objective = fg.Objective(model, batch(3))
    found = fg.measure(objective, names)
    for name in names:
        assert found[name].value == pytest.approx(expected[name].value, rel=1e-9)
    if part == "whole":
        assert list(objective.parameters) == [n for n, _ in eager.named_parameters()]


@pytest.mark.filterwarnings("ignore")
def test_observers_do_not_move_what_is_measured():
    quantization = pytest.importorskip("torch.ao.quantization")
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 3)).train()
    model.qconfig = quantization.get_default_qat_qconfig("fbgemm")
    model = quantization.prepare_qat(model)
    inputs, targets = batch(3)
    model(inputs.float())
    data = (inputs.float(), targets)
    with pytest.raises(fg.FlatgaugeError, match="fake_quant"):
        fg.Objective(model, data)
    objective = fg.Objective(model, data, derivatives="as given")
    first, second = (objective.at(objective.parameters).value() for _ in range(2))
    assert first == second
    enabled = [
        m.observer_enabled for m in model.modules() if hasattr(m, "fake_quant_enabled")
    ]
    assert all(bool(one) for one in enabled)


def test_a_backward_that_refuses_is_named():
    class Refuses(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, slope):
            raise AssertionError("call model.train() first")

    class Model(nn.Linear):
        def forward(self, x):
            return Refuses.apply(super().forward(x))

    with pytest.raises(fg.FlatgaugeError, match=r"AssertionError: call model\.train"):
        fg.Objective(Model(3, 3).double(), batch(3))


@pytest.mark.parametrize("family", ["Mixtral", "Qwen2Moe"])
def test_experts_are_measured_in_float64(family):
    """Each is a matrix of its own, and the user's model keeps its grouped products."""
    transformers = pytest.importorskip("transformers")
    more = {
        "Mixtral": {"num_local_experts": 2},
        "Qwen2Moe": {
            "num_experts": 2, "moe_intermediate_size": 3,
            "shared_expert_intermediate_size": 3,
        },
    }[family]  # fmt: skip
    config = getattr(transformers, f"{family}Config")(
        vocab_size=7, hidden_size=4, intermediate_size=3, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, num_experts_per_tok=2,
        use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2, **more,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).double()
    chosen = model.config._experts_implementation
    ids = 1 + torch.arange(12).reshape(3, 4) * 5 % 6
    objective = fg.Objective(
        model,
        [{"input_ids": ids, "labels": ids}],
        params=lambda name: "experts.down_proj" in name,
    )
    assert model.config._experts_implementation == chosen
    matrices = uses_of(objective).matrices
    assert [len(one.parts) for one in matrices.values()] == [2]
    report = fg.measure(objective, "hessian-trace", "normalized-sharpness")
    trace = float(dense_hessian(objective).trace())
    assert report["hessian-trace"].value == pytest.approx(trace, rel=1e-4)
    # Routers compute in float32, so that the bound on its roundings is wide.
    sharpness = report["normalized-sharpness"]
    assert sharpness.value is not None
    rough = sharpness.uncertainty > 0.1 * sharpness.value
    assert sharpness.status.trusted is not rough
