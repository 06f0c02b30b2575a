"""Counts for language and vision models built from transformers' configurations."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from flatgauge.objective import Objective
from flatgauge.symmetry import symmetries
from flatgauge.symmetry.verify import perturbed, relative_change

transformers = pytest.importorskip("transformers")

TOKENS = {"input_ids": torch.arange(16).reshape(2, 8) * 5 % 97}
PIXELS = {
    "pixel_values": torch.randn(
        2, 3, 32, 32, generator=torch.Generator().manual_seed(0)
    )
}


def check(model: nn.Module, inputs: dict, exact: int, approximate: int) -> None:
    group = symmetries(model, inputs, strict=True)
    assert (group.dimension, group.approximate_dimension) == (exact, approximate)
    generic = perturbed(copy.deepcopy(model).double().eval(), seed=3)
    doubled = {k: v.double() if v.is_floating_point() else v for k, v in inputs.items()}
    twin = group.act(generic, group.random_element(seed=5))
    with torch.no_grad():
        before, after = generic(**doubled).logits, twin(**doubled).logits
    assert relative_change([before], [after]) < 1e-13


@pytest.mark.parametrize(
    ("attention", "tied", "exact"),
    [("eager", True, 256), ("sdpa", True, 256), ("sdpa", False, 288)],
)
def test_gpt2(attention, tied, exact):
    """A layer has 2 D of its gains, D query-key and D value-output coordinates.

    GELU fixes the hidden units. 2 · 4 · 32 = 256; the last gain is absorbed by the head
    only where this is not the embedding: + 32. The stream scales up to eps: + 1.
    """
    config = transformers.GPT2Config(
        vocab_size=97, n_positions=16, n_embd=32, n_layer=2, n_head=4, use_cache=False,
        tie_word_embeddings=tied, attn_implementation=attention, bos_token_id=0,
        eos_token_id=0,
    )  # fmt: skip
    check(transformers.GPT2LMHeadModel(config), TOKENS, exact, exact + 1)


@pytest.mark.parametrize(
    ("attention", "tied", "exact"),
    [("eager", True, 272), ("sdpa", True, 272), ("sdpa", False, 304)],
)
def test_llama(attention, tied, exact):
    """A layer has 2 D gains, F = 48 up-down units and, for 2 key-value heads of size 8:

    2 · 8 / 2 query-key pairs (rotations tie coordinates in pairs, groups tie heads) and
    2 · 8 value-output coordinates. 2 (64 + 48 + 8 + 16) = 272; + 32 untied; + 1 up to
    eps.
    """
    config = transformers.LlamaConfig(
        vocab_size=97, hidden_size=32, intermediate_size=48, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, use_cache=False,
        tie_word_embeddings=tied, attn_implementation=attention,
    )  # fmt: skip
    check(transformers.LlamaForCausalLM(config), TOKENS, exact, exact + 1)


def test_vit():
    """L · 4 D + D = 288, as for torchvision's; + 1 up to eps."""
    config = transformers.ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, image_size=32, patch_size=8, num_labels=10,
    )  # fmt: skip
    check(transformers.ViTForImageClassification(config), PIXELS, 288, 289)


def test_bert():
    """Post-norm: a gain feeds the stream, which the next sum ties to fixed scales.

    Free: 2 (32 query-key + 32 value-output), and the gain of the last norm, absorbed by
    the pooler: 160. Up to eps each of the five norms' inputs scales as a whole: 165.
    """
    config = transformers.BertConfig(
        vocab_size=97, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64,
    )  # fmt: skip
    check(transformers.BertForSequenceClassification(config), TOKENS, 160, 165)


def test_t5():
    """D = 16, inner 2 · 8 = 16, F = 24 ReLU units; one layer each side.

    Attention: encoder, decoder and cross each 16 query-key + 16 value-output: 96. Hidden
    units 24 + 24. Gains: encoder 2 and its last, decoder 3, each 16: 96 (the decoder's
    last is tied to the embedding through the head). 240; + 1 up to eps.
    """
    config = transformers.T5Config(
        vocab_size=97, d_model=16, d_kv=8, d_ff=24, num_layers=1, num_heads=2,
        use_cache=False,
    )  # fmt: skip
    inputs = {**TOKENS, "decoder_input_ids": torch.arange(12).reshape(2, 6)}
    check(transformers.T5ForConditionalGeneration(config), inputs, 240, 241)


def test_mixtral():
    """As Llama, with F = 12 units of each of the 3 experts that the data reach, of 4.

    2 · 8 gains, 2 query-key pairs and 4 value-output coordinates of one head of size 4,
    3 · 12 units, and the last gain, 8: 66; + 1 up to eps.
    """
    config = transformers.MixtralConfig(
        vocab_size=97, hidden_size=8, intermediate_size=12, num_hidden_layers=1,
        num_attention_heads=2, num_key_value_heads=1, num_local_experts=4,
        num_experts_per_tok=1, use_cache=False, tie_word_embeddings=False,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.MixtralForCausalLM(config).double()
    router = model.model.layers[0].mlp.gate.weight.data
    router[3] = router[:3].mean(0)
    ids = torch.arange(64).reshape(8, 8) * 5 % 97
    batches = [{"input_ids": one, "labels": one} for one in ids.split(4)]
    group = symmetries(Objective(model, batches), strict=True)
    assert (group.dimension, group.approximate_dimension) == (66, 67)
    assert group.branches == ("model.layers.0.mlp.experts",)
    moved = group.random_element().log_scales["model.layers.0.mlp.experts.down_proj"]
    assert sum(scale.abs().expand(4, 8, 12).sum((1, 2)) for scale in moved)[3] == 0


@pytest.mark.slow
def test_llama_of_88_million_parameters():
    """12 (2 · 768 + 4 · 64 / 2 + 4 · 64 + 2048) + 768 = 48384, + 1 up to eps."""
    config = transformers.LlamaConfig(
        vocab_size=8000, hidden_size=768, intermediate_size=2048, num_hidden_layers=12,
        num_attention_heads=12, num_key_value_heads=4, use_cache=False,
        tie_word_embeddings=False,
    )  # fmt: skip
    check(transformers.LlamaForCausalLM(config), TOKENS, 48384, 48385)
