"""Tiny configurations that many families share, and how a family becomes a trial."""

from __future__ import annotations

from typing import Any

import torch

from zoo.registry import CLASSES, Trial, add, awakened, labels

SAMPLES, LENGTH, VOCABULARY = 4, 5, 13
WORDS: dict[str, Any] = {
    "vocab_size": VOCABULARY, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SMALL: dict[str, Any] = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 12, "max_position_embeddings": 16, **WORDS,
}  # fmt: skip
GROUPED = {**SMALL, "num_key_value_heads": 1}
HEADS = {**GROUPED, "head_dim": 4}
GPT: dict[str, Any] = {
    "n_embd": 8, "n_layer": 1, "n_head": 2, "n_positions": 16, **WORDS,
}  # fmt: skip
PAIRED: dict[str, Any] = {
    "d_model": 8, "encoder_layers": 1, "decoder_layers": 1, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 12, "decoder_ffn_dim": 12,
    "max_position_embeddings": 16, "decoder_start_token_id": 1, **WORDS,
}  # fmt: skip
IMAGES: dict[str, Any] = {
    "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
    "intermediate_size": 12, "image_size": 8, "patch_size": 4, "num_channels": 2,
}  # fmt: skip


def tokens() -> torch.Tensor:
    return torch.randint(3, VOCABULARY, (SAMPLES, LENGTH))


def images(size: int = 8, channels: int = 2) -> torch.Tensor:
    return torch.randn(SAMPLES, channels, size, size)


def made(cls: str, options: dict[str, Any]) -> Any:
    """A model of this class with random weights, all of them doing something."""
    import transformers

    chosen: Any = getattr(transformers, cls)
    return awakened(chosen(chosen.config_class(**options)))


def language_model(
    name: str, cls: str, options: dict[str, Any], refused: str = ""
) -> None:
    """One that predicts the next token."""

    def build() -> Trial:
        model = made(cls, {"use_cache": False, **options})
        words = tokens()
        return Trial(model, {"input_ids": words}, words.clone(), shifted=True)

    add(f"transformers/{name}", build, refused)


def classifier(name: str, cls: str, options: dict[str, Any], refused: str = "") -> None:
    """One that classifies sequences."""

    def build() -> Trial:
        model = made(cls, {"num_labels": CLASSES, **options})
        return Trial(model, {"input_ids": tokens()}, labels(SAMPLES))

    add(f"transformers/{name}", build, refused)


def translator(name: str, cls: str, options: dict[str, Any]) -> None:
    """From one sequence to another."""

    def build() -> Trial:
        model = made(cls, {"use_cache": False, **options})
        inputs = {"input_ids": tokens(), "decoder_input_ids": tokens()}
        return Trial(model, inputs, tokens())

    add(f"transformers/{name}", build)


def image_classifier(
    name: str, cls: str, options: dict[str, Any], size: int = 8
) -> None:
    """One that classifies pictures."""

    def build() -> Trial:
        model = made(cls, {"num_labels": CLASSES, **options})
        inputs = {"pixel_values": images(size, options.get("num_channels", 2))}
        return Trial(model, inputs, labels(SAMPLES))

    add(f"transformers/{name}", build)
