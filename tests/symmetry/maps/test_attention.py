from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from support.small_nets import assert_close, normal, params_of
from torch import Tensor, nn

from flatgauge.errors import SymmetryError
from flatgauge.symmetry.maps.attention import (
    AttentionLayout,
    Projection,
    transform_query_key,
    transform_value_output,
)
from flatgauge.symmetry.maps.head_matrices import random_gl, random_rotary
from papers.points import with_parameters


class Attention(nn.Module):
    """Grouped-query attention from explicit projections, with rotary embeddings."""

    def __init__(self, width, heads, kv_heads, size, bias, rotary=None):
        super().__init__()
        self.heads, self.kv_heads, self.size, self.rotary = (
            heads,
            kv_heads,
            size,
            rotary,
        )
        self.q = nn.Linear(width, heads * size, bias=bias)
        self.k = nn.Linear(width, kv_heads * size, bias=bias)
        self.v = nn.Linear(width, kv_heads * size, bias=bias)
        self.o = nn.Linear(heads * size, width, bias=bias)
        self.double()
        with torch.no_grad():
            for seed, parameter in enumerate(self.parameters()):
                parameter.copy_(normal(*parameter.shape, seed=seed) / width**0.5)

    def split(self, projected: Tensor, heads: int) -> Tensor:
        batch, time, _ = projected.shape
        parts = projected.view(batch, time, heads, self.size).transpose(1, 2)
        return parts.repeat_interleave(self.heads // heads, dim=1)

    def turn(self, parts: Tensor) -> Tensor:
        if self.rotary is None:
            return parts
        half = self.size // 2
        time = torch.arange(parts.shape[2], dtype=torch.float64)
        angle = time[:, None] * 10 ** -torch.arange(half, dtype=torch.float64)
        cosine, sine = angle.cos(), angle.sin()
        if self.rotary == "half":
            x, y = parts[..., :half], parts[..., half:]
        else:
            x, y = parts[..., ::2], parts[..., 1::2]
        turned = (x * cosine - y * sine, x * sine + y * cosine)
        if self.rotary == "half":
            return torch.cat(turned, -1)
        return torch.stack(turned, -1).flatten(-2)

    def forward(self, x: Tensor) -> Tensor:
        query = self.turn(self.split(self.q(x), self.heads))
        key = self.turn(self.split(self.k(x), self.kv_heads))
        value = self.split(self.v(x), self.kv_heads)
        weights = (query @ key.mT / self.size**0.5).softmax(-1)
        return self.o((weights @ value).transpose(1, 2).flatten(2))

    def layout(self) -> AttentionLayout:
        bias = self.q.bias is not None
        query, key, value, output = (
            Projection(f"{name}.weight", f"{name}.bias" if bias else None)
            for name in "qkvo"
        )
        return AttentionLayout(
            query, key, value, output, self.heads, self.kv_heads, self.rotary
        )


def multihead(**options) -> nn.MultiheadAttention:
    module = nn.MultiheadAttention(12, 3, batch_first=True, **options).double()
    with torch.no_grad():
        for seed, parameter in enumerate(module.parameters()):
            parameter.copy_(normal(*parameter.shape, seed=seed) / 3)
    return module


def moved(model: nn.Module, layout: AttentionLayout, size: int, seed: int) -> nn.Module:
    params = params_of(model)
    if layout.rotary is None:
        matrices = random_gl(layout.groups, size, seed)
    else:
        matrices = random_rotary(layout.groups, size, seed, layout.rotary)
    params = transform_query_key(params, layout, matrices)
    params = transform_value_output(
        params, layout, random_gl(layout.groups, size, seed + 1)
    )
    twin = with_parameters(model, params)
    for name in (layout.query.weight, layout.key.weight, layout.value.weight):
        assert not torch.allclose(params[name], params_of(model)[name])
    return twin


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"kdim": 5, "vdim": 7},
        {"kdim": 5, "vdim": 7, "bias": False},
        {"add_bias_kv": True},
        {"add_zero_attn": True},
    ],
    ids=str,
)
def test_torch_multihead_attention_keeps_its_outputs(options):
    model = multihead(**options)
    twin = moved(model, AttentionLayout.of(model), 4, seed=3)
    query = normal(2, 6, 12, seed=4)
    key = normal(2, 5, options.get("kdim", 12), seed=5)
    value = normal(2, 5, options.get("vdim", 12), seed=6)
    before, attended = model(query, key, value)
    after, attended_after = twin(query, key, value)
    torch.testing.assert_close(after, before, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(attended_after, attended, rtol=1e-12, atol=1e-12)


def test_torch_multihead_attention_inside_a_model():
    model = nn.TransformerEncoderLayer(12, 3, 8, dropout=0.0, batch_first=True)
    model = model.double().eval()
    layout = AttentionLayout.of(model.self_attn, "self_attn")
    twin = moved(model, layout, 4, seed=7)
    x = normal(2, 5, 12, seed=8)
    torch.testing.assert_close(twin(x), model(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("rotary", [None, "half", "interleaved"])
@pytest.mark.parametrize("kv_heads", [4, 2, 1])
def test_explicit_projections_keep_their_outputs(bias, rotary, kv_heads):
    model = Attention(10, 4, kv_heads, 6, bias, rotary)
    twin = moved(model, model.layout(), 6, seed=9)
    x = normal(3, 7, 10, seed=10)
    torch.testing.assert_close(twin(x), model(x), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("rotary", ["half", "interleaved"])
def test_rotary_refuses_what_does_not_commute(rotary):
    model = Attention(10, 2, 2, 6, True, rotary)
    params, layout = params_of(model), model.layout()
    other = "interleaved" if rotary == "half" else "half"
    reflection = torch.diag(torch.tensor([1.0, 1, 1, 1, 1, -1]).double()).expand(
        2, 6, 6
    )
    diagonal = torch.diag(torch.arange(1.0, 7).double()).expand(2, 6, 6)
    for matrices in (
        random_gl(2, 6, seed=11),
        random_rotary(2, 6, 12, other),
        reflection,
        diagonal,
    ):
        with pytest.raises(SymmetryError, match="scaled rotations"):
            transform_query_key(params, layout, matrices)
        transform_value_output(params, layout, matrices)


@pytest.mark.parametrize("rotary", ["half", "interleaved"])
def test_what_rotary_refuses_does_change_the_function(rotary):
    """The refusal is needed: without the flag the same matrices move the outputs."""
    model = Attention(10, 2, 2, 6, True, rotary)
    layout = AttentionLayout(
        *(Projection(f"{name}.weight", f"{name}.bias") for name in "qkvo"), heads=2
    )
    twin = with_parameters(
        model, transform_query_key(params_of(model), layout, random_gl(2, 6, seed=13))
    )
    x = normal(3, 7, 10, seed=14)
    assert (twin(x) - model(x)).abs().max().item() > 1e-3


def test_biases_must_move_along():
    model = multihead()
    layout = AttentionLayout.of(model)
    params = transform_query_key(params_of(model), layout, random_gl(3, 4, seed=15))
    params["in_proj_bias"] = params_of(model)["in_proj_bias"]
    x = normal(2, 6, 12, seed=16)
    after = with_parameters(model, params)(x, x, x)[0]
    assert (after - model(x, x, x)[0]).abs().max().item() > 1e-3


def test_nothing_is_changed_in_place():
    model = multihead()
    before = {name: tensor.clone() for name, tensor in params_of(model).items()}
    moved(model, AttentionLayout.of(model), 4, seed=17)
    for name, tensor in params_of(model).items():
        assert torch.equal(tensor, before[name])


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 1000), st.integers(0, 1000))
def test_matrices_act_as_a_group(left, right):
    model = Attention(8, 4, 2, 4, True)
    params, layout = params_of(model), model.layout()
    a, b = random_gl(2, 4, left), random_gl(2, 4, right)
    for transform in (transform_query_key, transform_value_output):
        twice = transform(transform(params, layout, a), layout, b)
        assert_close(twice, transform(params, layout, b @ a), 1e-12)
        back = transform(transform(params, layout, a), layout, torch.linalg.inv(a))
        assert_close(back, params, 1e-12)


@pytest.mark.parametrize("transform", [transform_query_key, transform_value_output])
def test_matrices_that_do_not_fit_are_refused(transform):
    model = Attention(8, 4, 2, 4, True)
    params, layout = params_of(model), model.layout()
    with pytest.raises(SymmetryError, match="2 key-value heads of 4"):
        transform(params, layout, random_gl(4, 4, seed=0))
    with pytest.raises(SymmetryError, match="2 key-value heads of 4"):
        transform(params, layout, random_gl(2, 3, seed=0))
    with pytest.raises(SymmetryError, match="singular"):
        transform(params, layout, torch.zeros(2, 4, 4, dtype=torch.float64))
    broken = random_gl(2, 4, seed=0)
    broken[1, 2, 3] = float("nan")
    with pytest.raises(SymmetryError, match="singular"):
        transform(params, layout, broken)


def test_layouts_that_cannot_be_are_refused():
    q, k, v, o = (Projection(name) for name in "qkvo")
    with pytest.raises(SymmetryError, match="evenly"):
        AttentionLayout(q, k, v, o, heads=4, kv_heads=3)
    with pytest.raises(SymmetryError, match="tied"):
        AttentionLayout(q, q, v, o, heads=4)
    with pytest.raises(SymmetryError, match="tied"):
        AttentionLayout(q, k, o, o, heads=4)
    model = Attention(8, 4, 4, 4, False)
    params = {**params_of(model), "o.weight": torch.zeros(8, 12).double()}
    with pytest.raises(SymmetryError, match="reads 12 coordinates"):
        transform_value_output(params, model.layout(), random_gl(4, 4, seed=0))


@settings(deadline=None, max_examples=10)
@given(st.integers(0, 10_000), st.floats(0.0, 2.0))
def test_random_matrices_are_well_conditioned_and_repeatable(seed, spread):
    matrices = random_gl(3, 5, seed, spread)
    logs = torch.linalg.svdvals(matrices).log().abs()
    assert float(logs.max()) <= spread + 1e-12
    assert torch.equal(matrices, random_gl(3, 5, seed, spread))
    state = torch.get_rng_state()
    random_gl(3, 5, seed, spread)
    assert torch.equal(torch.get_rng_state(), state)


def test_odd_heads_have_no_rotary_pairs():
    with pytest.raises(SymmetryError, match="odd"):
        random_rotary(1, 5, 0, "half")


def fused_conv1d(prefix: str, heads: int, width: int) -> AttentionLayout:
    """Of GPT-2's c_attn and c_proj, whose weights are laid out (inputs, outputs)."""
    query, key, value = (
        Projection(f"{prefix}.c_attn.weight", f"{prefix}.c_attn.bias", r, r, True)
        for r in ((part * width, (part + 1) * width) for part in range(3))
    )
    output = Projection(f"{prefix}.c_proj.weight", transposed=True)
    return AttentionLayout(query, key, value, output, heads)


def test_hugging_face_gpt2_keeps_its_outputs():
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_head=3, n_embd=12, n_positions=16, vocab_size=20
    )
    model = transformers.GPT2LMHeadModel(config).double().eval()
    tokens = torch.arange(10)[None]
    twin = model
    for block in range(2):
        layout = fused_conv1d(f"transformer.h.{block}.attn", 3, 12)
        twin = moved(twin, layout, 4, seed=20 + block)
    with torch.no_grad():
        torch.testing.assert_close(
            twin(tokens).logits, model(tokens).logits, rtol=1e-12, atol=1e-12
        )


def test_hugging_face_llama_keeps_its_outputs():
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        hidden_size=24,
        intermediate_size=16,
        vocab_size=20,
    )
    model = transformers.LlamaForCausalLM(config).double().eval()
    tokens = torch.arange(10)[None]
    twin = model
    for block in range(2):
        query, key, value, output = (
            Projection(f"model.layers.{block}.self_attn.{name}_proj.weight")
            for name in "qkvo"
        )
        layout = AttentionLayout(query, key, value, output, 4, 2, "half")
        twin = moved(twin, layout, 6, seed=30 + block)
    with torch.no_grad():
        torch.testing.assert_close(
            twin(tokens).logits, model(tokens).logits, rtol=1e-12, atol=1e-12
        )
