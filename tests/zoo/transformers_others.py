"""Networks of transformers for pictures and sound."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from zoo.registry import CLASSES, Trial, awakened, labels, network
from zoo.transformers_sizes import (
    IMAGES,
    SAMPLES,
    WORDS,
    image_classifier,
    images,
    made,
    tokens,
)

SWIN: dict[str, Any] = {
    "image_size": 8, "patch_size": 2, "num_channels": 2, "embed_dim": 8, "depths": [1, 1],
    "num_heads": [1, 2], "window_size": 2, "mlp_ratio": 2.0,
}  # fmt: skip
STAGES: dict[str, Any] = {
    "num_channels": 2, "hidden_sizes": [8, 8], "depths": [1, 1], "num_stages": 2,
}  # fmt: skip
SEGFORMER: dict[str, Any] = {
    "num_channels": 2, "num_encoder_blocks": 2, "depths": [1, 1], "sr_ratios": [2, 1],
    "hidden_sizes": [4, 8], "patch_sizes": [3, 3], "strides": [2, 2], "mlp_ratios": [2, 2],
    "num_attention_heads": [1, 2], "decoder_hidden_size": 4, "num_labels": CLASSES,
}  # fmt: skip

PICTURES: dict[str, tuple[str, dict[str, Any], int]] = {
    "vit": ("ViTForImageClassification", IMAGES, 8),
    "deit": ("DeiTForImageClassification", IMAGES, 8),
    "beit": ("BeitForImageClassification", IMAGES, 8),
    "dinov2": ("Dinov2ForImageClassification", IMAGES, 8),
    "swin": ("SwinForImageClassification", SWIN, 8),
    "swinv2": ("Swinv2ForImageClassification", SWIN, 8),
    "convnext": ("ConvNextForImageClassification", {**STAGES, "patch_size": 1}, 8),
    "convnextv2": ("ConvNextV2ForImageClassification", {**STAGES, "patch_size": 1}, 8),
    "resnet": (
        "ResNetForImageClassification",
        {"num_channels": 2, "embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1],
         "layer_type": "basic"},
        16,
    ),
    "regnet": (
        "RegNetForImageClassification",
        {"num_channels": 2, "embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1],
         "groups_width": 4},
        16,
    ),
    "poolformer": (
        "PoolFormerForImageClassification",
        {"num_channels": 2, "hidden_sizes": [4, 8], "depths": [1, 1], "num_encoder_blocks": 2,
         "patch_sizes": [3, 3], "strides": [2, 2], "padding": [1, 1], "mlp_ratio": 2.0},
        8,
    ),
    "segformer": ("SegformerForImageClassification", SEGFORMER, 16),
    "mobilevit": (
        "MobileViTForImageClassification",
        {"num_channels": 2, "image_size": 32, "hidden_sizes": [4, 4, 4],
         "neck_hidden_sizes": [4, 4, 4, 4, 4, 4, 8], "num_attention_heads": 2,
         "expand_ratio": 1.0},
        32,
    ),
}  # fmt: skip

for name, (cls, options, size) in PICTURES.items():
    image_classifier(name, cls, options, size)


@network("transformers")
def segformer_seg() -> Trial:
    model = made("SegformerForSemanticSegmentation", SEGFORMER)

    def forward(model: nn.Module, batch: Any) -> Tensor:
        return model(pixel_values=batch[0]).logits.permute(0, 2, 3, 1).flatten(0, 2)

    return Trial(model, images(16), labels(SAMPLES * 64), forward=forward)


CLIP_VISION = {**IMAGES, "projection_dim": 8}
CLIP_TEXT = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 12, "max_position_embeddings": 16, "projection_dim": 8, **WORDS,
}  # fmt: skip


@network("transformers")
def clip_vision() -> Trial:
    model = made("CLIPForImageClassification", {
        "vision_config": CLIP_VISION, "text_config": CLIP_TEXT, "projection_dim": 8,
        "num_labels": CLASSES,
    })  # fmt: skip
    return Trial(model, {"pixel_values": images()}, labels(SAMPLES))


@network("transformers")
def clip_contrastive() -> Trial:
    """Every picture against every text: samples are each other's classes."""
    model = made("CLIPModel", {
        "vision_config": CLIP_VISION, "text_config": CLIP_TEXT, "projection_dim": 8,
    })  # fmt: skip

    def forward(model: nn.Module, batch: Any) -> Tensor:
        (pictures, words), _ = batch
        return model(pixel_values=pictures, input_ids=words).logits_per_image

    def contrast(scores: Tensor, targets: Tensor) -> Tensor:
        one = nn.functional.cross_entropy(scores, targets)
        return (one + nn.functional.cross_entropy(scores.T, targets)) / 2

    inputs = (images(), tokens())
    return Trial(model, inputs, torch.arange(SAMPLES), contrast, forward)


SPEECH: dict[str, Any] = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 12, "conv_dim": [4, 4], "conv_stride": [4, 2],
    "conv_kernel": [4, 2], "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 4,
    "num_conv_pos_embedding_groups": 2, "classifier_proj_size": 4, "vocab_size": 13,
    "num_labels": CLASSES, "mask_time_prob": 0.0,
}  # fmt: skip


def _speech(cls: str) -> Trial:
    inputs = {"input_values": torch.randn(SAMPLES, 64)}
    return Trial(made(cls, SPEECH), inputs, labels(SAMPLES))


@network("transformers")
def wav2vec2() -> Trial:
    return _speech("Wav2Vec2ForSequenceClassification")


@network("transformers")
def hubert() -> Trial:
    return _speech("HubertForSequenceClassification")


@network("transformers")
def audio_spectrogram() -> Trial:
    model = made("ASTForAudioClassification", {
        "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 12, "patch_size": 4, "frequency_stride": 4, "time_stride": 4,
        "max_length": 8, "num_mel_bins": 8, "num_labels": CLASSES,
    })  # fmt: skip
    return Trial(model, {"input_values": torch.randn(SAMPLES, 8, 8)}, labels(SAMPLES))


@network("transformers")
def whisper() -> Trial:
    model = made("WhisperForConditionalGeneration", {
        "d_model": 8, "encoder_layers": 1, "decoder_layers": 1,
        "encoder_attention_heads": 2, "decoder_attention_heads": 2, "encoder_ffn_dim": 12,
        "decoder_ffn_dim": 12, "num_mel_bins": 3, "max_source_positions": 4,
        "max_target_positions": 8, "use_cache": False, "decoder_start_token_id": 1,
        **WORDS,
    })  # fmt: skip
    inputs = {
        "input_features": torch.randn(SAMPLES, 3, 8), "decoder_input_ids": tokens(),
    }  # fmt: skip
    return Trial(model, inputs, tokens())


@network("transformers")
def gpt2_checkpointing_train() -> Trial:
    """With gradient checkpointing, in training mode, all dropout off."""
    from zoo.transformers_sizes import GPT

    off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "use_cache": False}
    model = made("GPT2LMHeadModel", {**GPT, **off})
    model.gradient_checkpointing_enable()
    words = tokens()
    return Trial(model, {"input_ids": words}, words.clone(), mode="train", shifted=True)


@network("transformers")
def decision_transformer() -> Trial:
    import transformers

    config = transformers.DecisionTransformerConfig(
        state_dim=3, act_dim=CLASSES, hidden_size=8, max_ep_len=8, n_layer=1, n_head=2,
        n_positions=16, vocab_size=1,
    )  # fmt: skip
    model = awakened(transformers.DecisionTransformerModel(config))

    def forward(model: nn.Module, batch: Any) -> Tensor:
        (states, actions, returns, times), _ = batch
        found = model(
            states=states, actions=actions, returns_to_go=returns, timesteps=times,
            rewards=returns, attention_mask=torch.ones_like(times),
        )  # fmt: skip
        return found.action_preds

    times = torch.arange(2).expand(SAMPLES, 2)
    inputs = (
        torch.randn(SAMPLES, 2, 3), torch.randn(SAMPLES, 2, CLASSES),
        torch.randn(SAMPLES, 2, 1), times,
    )  # fmt: skip
    return Trial(model, inputs, torch.randn(SAMPLES, 2, CLASSES), "mse", forward)
