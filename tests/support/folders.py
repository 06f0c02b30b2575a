"""Hugging Face folders, made here: a tiny model with a tokenizer of a few words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

WORDS = ["good", "bad", "film", "book", "very", "the", "a", "is", "was", "not"]
TEXTS = [
    ("the film is good", "positive"),
    ("a book", "negative"),
    ("the very bad film was not very good", "negative"),
    ("good good", "positive"),
    ("the book was a very very very good book", "positive"),
    ("not a film", "negative"),
]
SPECIAL = {
    "pad_token": "[P]",
    "mask_token": "[M]",
    "unk_token": "[U]",
    "eos_token": "[E]",
}


def tokenizer(**special: str) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    every = [*SPECIAL.values(), *WORDS]
    words = models.WordLevel({w: i for i, w in enumerate(every)}, unk_token="[U]")
    inner = Tokenizer(words)
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, **(special or SPECIAL))


def save_folder(folder: Path, name: str, seed: int = 0, **options: Any) -> Any:
    """Save a tiny model of a class of transformers, and return it."""
    import transformers

    special = options.pop("special", {})
    kind = getattr(transformers, name)
    config = kind.config_class(
        **{
            "vocab_size": len(SPECIAL) + len(WORDS),
            "hidden_size": 4,
            "num_hidden_layers": 1,
            "num_attention_heads": 2,
            "intermediate_size": 5,
            "max_position_embeddings": 8,
            "pad_token_id": 0,
            "bos_token_id": None,
            "eos_token_id": 3,
            **options,
        }
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = kind(config)
    model.save_pretrained(folder)
    tokenizer(**special).save_pretrained(folder)
    return model.eval()


def save_lines(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n\n")
    return path


def small_trainer(folder: Path, **arguments: Any) -> Any:
    """A Trainer of a tiny classifier of the texts, on a CPU."""
    import transformers

    words = tokenizer()
    items = [
        {
            **words(text, truncation=True, max_length=8),
            "label": int(label == "positive"),
        }
        for text, label in TEXTS * 4
    ]
    return transformers.Trainer(
        model=save_folder(folder, "BertForSequenceClassification", num_labels=2),
        args=transformers.TrainingArguments(
            output_dir=str(folder / "out"),
            per_device_train_batch_size=4,
            save_strategy="no",
            use_cpu=True,
            disable_tqdm=True,
            **arguments,
        ),
        train_dataset=items,
        data_collator=transformers.DataCollatorWithPadding(words),
    )
