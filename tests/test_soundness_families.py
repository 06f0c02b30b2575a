"""The certificate on transformers' families, from configurations: no false alarm."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support import sound
from support.unsound import PARTS, StraightThrough
from torch import nn

import flatgauge as fg
from flatgauge.errors import LossError, ModelError

transformers: Any = pytest.importorskip("transformers")
WORDS: dict[str, Any] = {"vocab_size": 31, "pad_token_id": 0}
SMALL: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "max_position_embeddings": 32, "bos_token_id": 1,
    "eos_token_id": 2, **WORDS,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 1}
GPT: dict[str, Any] = {
    "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 32, "bos_token_id": 1,
    "eos_token_id": 2, **WORDS,
}  # fmt: skip
IMAGES: dict[str, Any] = {
    "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "intermediate_size": 24, "image_size": 8, "patch_size": 4, "num_channels": 1,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    # causal language models
    "GPT2LMHeadModel": GPT,
    "GPTJForCausalLM": {**GPT, "rotary_dim": 4},
    "GPTNeoXForCausalLM": SMALL,
    "PhiForCausalLM": SMALL,
    "FalconForCausalLM": SMALL,
    "LlamaForCausalLM": GROUPED,
    "MistralForCausalLM": GROUPED,
    "MixtralForCausalLM": {**GROUPED, "num_local_experts": 3},
    "Qwen2ForCausalLM": GROUPED,
    "Qwen3ForCausalLM": {**GROUPED, "head_dim": 8},
    "GemmaForCausalLM": {**GROUPED, "head_dim": 8},
    "Gemma2ForCausalLM": {**GROUPED, "head_dim": 8},
    "OlmoForCausalLM": GROUPED,
    "StableLmForCausalLM": GROUPED,
    "MambaForCausalLM": {
        "hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, **WORDS,
    },
    "OPTForCausalLM": {**SMALL, "ffn_dim": 24, "word_embed_proj_dim": 16},
    "BloomForCausalLM": {"hidden_size": 16, "n_layer": 2, "n_head": 2, **WORDS},
    # encoders
    "BertForSequenceClassification": SMALL,
    "RobertaForSequenceClassification": SMALL,
    "AlbertForSequenceClassification": {**SMALL, "embedding_size": 8},
    "ElectraForSequenceClassification": {**SMALL, "embedding_size": 8},
    "ModernBertForSequenceClassification": {
        **SMALL, "cls_token_id": 1, "sep_token_id": 2,
    },
    "DistilBertForSequenceClassification": {
        "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24, **WORDS,
    },
    "XLNetForSequenceClassification": {
        "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, **WORDS,
    },
    # from one sequence to another
    "T5ForConditionalGeneration": {
        "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 2, "num_heads": 2, **WORDS,
    },
    "BartForConditionalGeneration": {
        "d_model": 16, "encoder_layers": 2, "decoder_layers": 2,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 24,
        "decoder_ffn_dim": 24, "max_position_embeddings": 32, **WORDS,
    },
    # images
    "ViTForImageClassification": IMAGES,
    "DeiTForImageClassification": IMAGES,
    "BeitForImageClassification": IMAGES,
    "SwinForImageClassification": {
        "image_size": 8, "patch_size": 2, "num_channels": 1, "embed_dim": 8,
        "depths": [1, 1], "num_heads": [1, 2], "window_size": 2,
    },
    "ConvNextForImageClassification": {
        "num_channels": 1, "patch_size": 1, "hidden_sizes": [8, 8], "depths": [1, 1],
        "num_stages": 2,
    },
}  # fmt: skip


def family(name: str, **more: Any) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    """A model with random weights, and six samples."""
    cls = getattr(transformers, name)
    options = {**FAMILIES[name], **more}
    if "Classification" in name:
        options["num_labels"] = 3
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(cls.config_class(**options))
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(3, 31, (6, 7), generator=random)
    if "Image" in name:
        batch = {"pixel_values": torch.randn(6, 1, 8, 8, generator=random)}
    else:
        batch = {"input_ids": tokens}
    if "Conditional" in name:
        batch["decoder_input_ids"] = tokens.flip(0)
    classes = "Classification" in name
    return model, {**batch, "labels": torch.arange(6) % 3 if classes else tokens}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FAMILIES)
def test_no_false_alarm_on_families(name):
    model, batch = family(name)
    assert fg.Objective(model, [batch]).derivatives == "checked"


@pytest.mark.slow
def test_no_false_alarm_on_generated_networks():
    found = []
    for seed in range(1000, 1060):
        try:
            objective = fg.Objective(
                nn.Sequential(*sound.parts(seed)),
                sound.data(seed),
                **sound.options(seed),
            )
        # The normalized loss has none where a dead layer gives equal scores.
        except LossError:
            continue
        found.append(objective.derivatives)
    assert len(found) >= 55
    assert set(found) <= {"checked", "undecided"}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["LlamaForCausalLM", "T5ForConditionalGeneration"])
def test_an_unsound_part_among_float32_norms_is_found(name):
    model, batch = family(name)
    head = model.lm_head
    model.lm_head = nn.Sequential(StraightThrough(), head)
    with pytest.raises(
        ModelError, match=r"because of 'lm_head\.0' \(StraightThrough\)"
    ):
        fg.Objective(model, [batch])
    for part in ("half-detached", "hook"):
        model.lm_head = nn.Sequential(PARTS[part](16), head)
        with pytest.raises(ModelError, match=r"because of 'lm_head\.0'"):
            fg.Objective(model, [batch])


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reentrant", [True, False])
def test_gradient_checkpointing_of_transformers(reentrant):
    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    model, batch = family("GPT2LMHeadModel", **off)
    right = fg.Objective(model, [batch], mode="train", dtype=torch.float64).gradient()
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    model.config.use_cache = False
    objective = fg.Objective(model, [batch], mode="train", dtype=torch.float64)
    assert objective.derivatives == "checked"
    found = objective.gradient()
    assert all(torch.allclose(found[name], right[name]) for name in right)
