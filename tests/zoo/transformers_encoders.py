"""Encoders of transformers, for text."""

from __future__ import annotations

from typing import Any

from zoo.registry import Trial, awakened, labels, network
from zoo.transformers_sizes import PAIRED as PAIR
from zoo.transformers_sizes import (
    SAMPLES,
    SMALL,
    WORDS,
    classifier,
    made,
    tokens,
    translator,
)

FACTORED = {**SMALL, "embedding_size": 4}
T5: dict[str, Any] = {
    "d_model": 8, "d_kv": 4, "d_ff": 12, "num_layers": 1, "num_heads": 2,
    "decoder_start_token_id": 1, **WORDS,
}  # fmt: skip
SEPARATED = {**SMALL, "cls_token_id": 1, "sep_token_id": 2}

ENCODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertForSequenceClassification", SMALL),
    "roberta": ("RobertaForSequenceClassification", SMALL),
    "camembert": ("CamembertForSequenceClassification", SMALL),
    "albert": ("AlbertForSequenceClassification", FACTORED),
    "electra": ("ElectraForSequenceClassification", FACTORED),
    "distilbert": (
        "DistilBertForSequenceClassification",
        {"dim": 8, "n_layers": 1, "n_heads": 2, "hidden_dim": 12,
         "max_position_embeddings": 16, **WORDS},
    ),
    "deberta": (
        "DebertaForSequenceClassification",
        {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
         "type_vocab_size": 0},
    ),
    "deberta_v2": (
        "DebertaV2ForSequenceClassification",
        {**SMALL, "relative_attention": True, "pos_att_type": ["c2p", "p2c"],
         "position_buckets": 4, "norm_rel_ebd": "layer_norm"},
    ),
    "modernbert": ("ModernBertForSequenceClassification", SEPARATED),
    "fnet": ("FNetForSequenceClassification", SMALL),
    "xlnet": (
        "XLNetForSequenceClassification",
        {"d_model": 8, "n_layer": 1, "n_head": 2, "d_inner": 12, **WORDS},
    ),
    "longformer": (
        "LongformerForSequenceClassification", {**SEPARATED, "attention_window": 4},
    ),
    "roformer": ("RoFormerForSequenceClassification", {**SMALL, "embedding_size": 8}),
    "mobilebert": (
        "MobileBertForSequenceClassification",
        {**SMALL, "embedding_size": 8, "intra_bottleneck_size": 8,
         "num_feedforward_networks": 1},
    ),
    "squeezebert": (
        "SqueezeBertForSequenceClassification",
        {**SMALL, "embedding_size": 8, "q_groups": 2, "k_groups": 2, "v_groups": 2,
         "post_attention_groups": 1, "intermediate_groups": 2, "output_groups": 2},
    ),
    "nystromformer": (
        "NystromformerForSequenceClassification",
        {**SMALL, "num_landmarks": 5, "segment_means_seq_len": 5, "conv_kernel_size": 3},
    ),
    "reformer": (
        "ReformerForSequenceClassification",
        {"hidden_size": 8, "attention_head_size": 4, "num_attention_heads": 2,
         "feed_forward_size": 12, "attn_layers": ["local"], "local_attn_chunk_length": 5,
         "axial_pos_shape": [1, 5], "axial_pos_embds_dim": [4, 4],
         "max_position_embeddings": 5, "is_decoder": False, **WORDS},
    ),
}  # fmt: skip
PAIRS: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("BartForConditionalGeneration", PAIR),
    "pegasus": ("PegasusForConditionalGeneration", PAIR),
    "marian": ("MarianMTModel", PAIR),
    "t5": ("T5ForConditionalGeneration", T5),
    "t5_gated": (
        "T5ForConditionalGeneration", {**T5, "feed_forward_proj": "gated-gelu"},
    ),
}  # fmt: skip

REFUSED = {
    "reformer": "its reversible layers compute their own backward pass, in training alone",
}

for name, (cls, options) in ENCODERS.items():
    classifier(name, cls, options, REFUSED.get(name, ""))
for name, (cls, options) in PAIRS.items():
    translator(name, cls, options)


@network("transformers")
def bert_mlm() -> Trial:
    words = tokens()
    return Trial(made("BertForMaskedLM", SMALL), {"input_ids": words}, words.clone())


@network("transformers")
def bert_padded() -> Trial:
    import torch

    model = made("BertForSequenceClassification", {**SMALL, "num_labels": 5})
    mask = torch.ones(SAMPLES, 5, dtype=torch.long)
    mask[1, 3:] = 0
    inputs = {"input_ids": tokens(), "attention_mask": mask}
    return Trial(model, inputs, labels(SAMPLES))


@network("transformers")
def perceiver() -> Trial:
    import transformers

    config = transformers.PerceiverConfig(
        num_latents=3, d_latents=8, d_model=8, num_blocks=1, num_self_attends_per_block=1,
        num_self_attention_heads=2, num_cross_attention_heads=2, qk_channels=8,
        v_channels=8, vocab_size=13, max_position_embeddings=5, num_labels=5,
    )  # fmt: skip
    model = awakened(transformers.PerceiverForSequenceClassification(config))
    return Trial(model, {"inputs": tokens()}, labels(SAMPLES))
