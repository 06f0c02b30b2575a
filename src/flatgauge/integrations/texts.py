"""Texts in a file, as batches for a Hugging Face model's own task.

A line of the file is a JSON object. Texts are cut at the model's longest, and padded to
the longest of their batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from flatgauge.errors import DataError
from flatgauge.integrations.hugging_face import Folder

BATCH = 16
"""The batch size, where none is given."""
IGNORED = -100
MASKED = 0.15
"""The share of tokens that a masked language model is asked for."""
FIRST = ("text", "sentence", "sentence1", "premise", "question")
SECOND = ("text_pair", "sentence2", "hypothesis", "answer")
TAGGED = ("tokens", "words")
TAGS = ("labels", "tags", "ner_tags")
LABEL = ("label", "labels")
TARGET = ("target", "summary", "labels")
Record = Mapping[str, Any]
Batch = dict[str, Tensor]


def text_batches(
    folder: Folder, path: Path, limit: int | None = None, size: int | None = None
) -> list[Batch]:
    """The texts of a file as a model's inputs and labels.

    Args:
        folder: whose tokenizer and task are used.
        path: a file of JSON lines. "text" (or "sentence"), and for a pair "text_pair";
            "label" for classification and regression, as a number or as the
            configuration's name for it; "tokens" and "labels" for token classification;
            "target" for sequence to sequence. Language models need the text alone.
        limit: take only the first so many.
        size: texts in a batch.
    """
    records = read_records(path, limit)
    task = TASKS[folder.task()]
    encoder = _Encoder(folder)
    step = size or BATCH
    try:
        return [
            dict(task(encoder, records[start : start + step]))
            for start in range(0, len(records), step)
        ]
    except _BadRecord as error:
        raise DataError(f"'{path}', line {error.line}: {error}") from error


def read_records(path: Path, limit: int | None = None) -> list[Record]:
    """The JSON objects of a file, one from each line that is not empty."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"the texts '{path}' could not be read: {error}.") from error
    found: list[Record] = []
    for index, line in enumerate(lines):
        if not line.strip():
            continue
        try:
            record = json.loads(line)
        except ValueError as error:
            raise DataError(
                f"'{path}', line {index + 1}, is no JSON: {error}."
            ) from error
        if not isinstance(record, dict):
            raise DataError(
                f"'{path}', line {index + 1}, is no object: write one such as "
                '{"text": "..."} a line.'
            )
        found.append({**record, "": index + 1})
        if len(found) == limit:
            break
    if not found:
        raise DataError(f"'{path}' holds no texts.")
    return found


class _BadRecord(Exception):
    """What is wrong with a line."""

    def __init__(self, record: Record, sentence: str):
        super().__init__(sentence)
        self.line = record[""]


class _Encoder:
    """A tokenizer with what the configuration says about lengths and labels."""

    def __init__(self, folder: Folder):
        self.config, self.tokenizer = folder.config(), folder.tokenizer()
        self.regression = folder.loss() == "mse"
        longest = [
            getattr(self.config, name, None)
            for name in ("max_position_embeddings", "n_positions")
        ]
        known = [one for one in longest if isinstance(one, int) and one > 0]
        self.longest = min([self.tokenizer.model_max_length, *known])

    def __call__(self, *texts: Any, **more: Any) -> Any:
        return self.tokenizer(
            *texts,
            padding=True,
            truncation=True,
            max_length=self.longest,
            return_tensors="pt",
            **more,
        )

    def of(self, records: Sequence[Record]) -> Any:
        """The texts, or the pairs of texts, as inputs."""
        first = [_value(record, FIRST) for record in records]
        if any(_has(record, SECOND) for record in records):
            return self(first, [_value(record, SECOND) for record in records])
        return self(first)

    def label(self, record: Record, given: Any) -> int:
        """The class that a label names."""
        count = self.config.num_labels
        names = {**self.config.label2id, **{str(i): i for i in range(count)}}
        if str(given) not in names or isinstance(given, float):
            known = ", ".join(map(str, self.config.label2id))
            raise _BadRecord(
                record, f"the label {given!r} is none of {known}, nor their number."
            )
        return int(names[str(given)])


def _value(record: Record, names: Sequence[str]) -> Any:
    if not _has(record, names):
        found = ", ".join(key for key in record if key)
        raise _BadRecord(
            record, f"there is no '{names[0]}', only {found or 'nothing'}."
        )
    return next(record[name] for name in names if name in record)


def _has(record: Record, names: Sequence[str]) -> bool:
    return any(name in record for name in names)


def _classified(encoder: _Encoder, records: Sequence[Record]) -> Batch:
    labels = [_value(record, LABEL) for record in records]
    if not encoder.regression:
        chosen = zip(records, labels, strict=True)
        targets = torch.tensor([encoder.label(*pair) for pair in chosen])
    else:
        for record, label in zip(records, labels, strict=True):
            if isinstance(label, bool) or not isinstance(label, int | float):
                raise _BadRecord(record, f"the label {label!r} is no number.")
        targets = torch.tensor(labels, dtype=torch.float64)[:, None]
    return {**encoder.of(records), "labels": targets}


def _tagged(encoder: _Encoder, records: Sequence[Record]) -> Batch:
    """The first token of each word has the word's label."""
    words = [_value(record, TAGGED) for record in records]
    inputs = encoder(words, is_split_into_words=True)
    labels = torch.full_like(inputs["input_ids"], IGNORED)
    for row, record in enumerate(records):
        tags = _value(record, TAGS)
        if len(tags) != len(words[row]):
            raise _BadRecord(
                record, f"{len(words[row])} words have {len(tags)} labels."
            )
        before = None
        for place, word in enumerate(inputs.word_ids(row)):
            if word is not None and word != before:
                labels[row, place] = encoder.label(record, tags[word])
            before = word
    return {**inputs, "labels": labels}


def _continued(encoder: _Encoder, records: Sequence[Record]) -> Batch:
    inputs = encoder.of(records)
    hidden = inputs["attention_mask"] == 0
    return {**inputs, "labels": inputs["input_ids"].masked_fill(hidden, IGNORED)}


def _masked(encoder: _Encoder, records: Sequence[Record]) -> Batch:
    """A fixed draw for each line, so that batches change nothing."""
    inputs = encoder.of(records)
    tokens = inputs["input_ids"]
    special = torch.tensor(
        [
            encoder.tokenizer.get_special_tokens_mask(
                row, already_has_special_tokens=True
            )
            for row in tokens.tolist()
        ]
    ).bool()
    draws = torch.stack(
        [
            torch.rand(
                tokens.shape[1], generator=torch.Generator().manual_seed(record[""])
            )
            for record in records
        ]
    )
    chosen = (draws < MASKED) & ~special & (inputs["attention_mask"] == 1)
    asked = tokens.masked_fill(~chosen, IGNORED)
    hidden = tokens.masked_fill(chosen, encoder.tokenizer.mask_token_id)
    return {**inputs, "input_ids": hidden, "labels": asked}


def _generated(encoder: _Encoder, records: Sequence[Record]) -> Batch:
    """The decoder's inputs are its targets, one later, as these models shift them."""
    inputs = encoder.of(records)
    targets = encoder(text_target=[_value(record, TARGET) for record in records])
    tokens, mask = targets["input_ids"], targets["attention_mask"]
    begin = encoder.config.decoder_start_token_id
    start = torch.full_like(tokens[:, :1], begin)
    return {
        **inputs,
        "decoder_input_ids": torch.cat([start, tokens[:, :-1]], dim=1),
        "labels": tokens.masked_fill(mask == 0, IGNORED),
    }


TASKS: dict[str, Callable[[_Encoder, Sequence[Record]], Batch]] = {
    "ForSequenceClassification": _classified,
    "ForTokenClassification": _tagged,
    "ForMaskedLM": _masked,
    "ForCausalLM": _continued,
    "ForConditionalGeneration": _generated,
}
