"""Hugging Face folders from the command line: no code of the user's, and none of theirs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.folders import TEXTS, save_folder, save_lines, tokenizer

from flatgauge.cli import main
from flatgauge.errors import DataError, ModelError
from flatgauge.integrations.hugging_face import Folder
from flatgauge.integrations.texts import text_batches

transformers = pytest.importorskip("transformers")

LABELS = {"id2label": {0: "negative", 1: "positive", 2: "none"}} | {
    "label2id": {"negative": 0, "positive": 1, "none": 2}
}
RECORDS = [{"text": text, "label": label} for text, label in TEXTS]
TAGGED = [
    {"tokens": text.split(), "labels": [i % 3 for i in range(len(text.split()))]}
    for text, _ in TEXTS
]
GPT2 = {"n_embd": 4, "n_layer": 1, "n_head": 2, "n_inner": 5, "n_positions": 8}
T5 = {"d_model": 4, "d_kv": 2, "d_ff": 5, "num_layers": 1, "num_heads": 2}
CASES: dict[str, tuple[str, dict[str, Any], list[dict[str, Any]]]] = {
    "classes": ("BertForSequenceClassification", LABELS, RECORDS),
    "a number": (
        "BertForSequenceClassification",
        {"num_labels": 1},
        [{"sentence": text, "label": i / 2} for i, (text, _) in enumerate(TEXTS)],
    ),
    "pairs": (
        "BertForSequenceClassification",
        LABELS,
        [{"text": "good", "text_pair": text, "label": 2} for text, _ in TEXTS],
    ),
    "tokens": ("BertForTokenClassification", LABELS, TAGGED),
    "left to right": ("GPT2LMHeadModel", GPT2, RECORDS),
    "llama": ("LlamaForCausalLM", {}, RECORDS),
    "masked": ("BertForMaskedLM", {}, [{"text": text} for text, _ in TEXTS]),
    "to another text": (
        "T5ForConditionalGeneration",
        T5 | {"decoder_start_token_id": 0},
        [{"text": text, "target": label} for text, label in TEXTS],
    ),
}


def own_loss(model, batches: list[dict[str, Any]], by_tokens: bool) -> float:
    """transformers' own loss over batches, weighted by what each averages over."""
    total = count = 0.0
    for batch in batches:
        labels = batch["labels"]
        shifted = labels[:, 1:] if model.can_generate() and by_tokens else labels
        if model.config.is_encoder_decoder:
            shifted = labels
        rows = int((shifted != -100).sum()) if by_tokens else len(labels)
        given = {k: v.float() if v.is_floating_point() else v for k, v in batch.items()}
        with torch.no_grad():
            total += rows * float(model(**given).loss)
        count += rows
    return total / count


@pytest.mark.parametrize("case", CASES)
def test_a_folder_and_texts_need_no_code(case, tmp_path):
    name, options, records = CASES[case]
    model = save_folder(tmp_path / "net", name, **options)
    texts = save_lines(tmp_path / "texts.jsonl", records)
    command = ["measure", f"hf:{tmp_path / 'net'}", str(texts)]
    command += ["--measure", "spectral-norm-product"]
    losses = []
    for size in ("2", "4"):
        found = tmp_path / f"{size}.json"
        assert main([*command, "--json", str(found), "--batch-size", size]) == 0
        facts = json.loads(found.read_text())["provenance"]
        losses.append(facts["loss_value"])
        assert facts["model"] == name
    # Padding and batches change nothing.
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    batches = text_batches(Folder(str(tmp_path / "net")), texts, size=3)
    by_tokens = "Classification" not in name or "Token" in name
    expected = own_loss(model, batches, by_tokens)
    assert losses[0] == pytest.approx(expected, rel=1e-5)


def test_a_model_without_a_token_for_padding(tmp_path):
    special = {"unk_token": "[U]", "eos_token": "[E]"}
    options = {**GPT2, **LABELS, "pad_token_id": None, "special": special}
    save_folder(tmp_path / "net", "GPT2ForSequenceClassification", **options)
    folder = Folder(str(tmp_path / "net"))
    texts = save_lines(tmp_path / "a.jsonl", RECORDS)
    model = folder.model()
    whole, *_ = text_batches(folder, texts, size=6)
    with torch.no_grad():
        together = model(**whole).logits
        alone = [model(**one).logits for one in text_batches(folder, texts, size=1)]
    torch.testing.assert_close(together, torch.cat(alone))


def test_checkpoints_of_a_trainer_go_into_the_folder_s_model(tmp_path):
    save_folder(tmp_path / "net", "LlamaForCausalLM", tie_word_embeddings=True)
    other = save_folder(
        tmp_path / "checkpoint-5", "LlamaForCausalLM", seed=1, tie_word_embeddings=True
    )
    texts = save_lines(tmp_path / "a.jsonl", RECORDS)
    found = tmp_path / "a.json"
    command = ["measure", f"hf:{tmp_path / 'net'}", str(texts), "--json", str(found)]
    command += ["--weights", str(tmp_path / "checkpoint-5"), "--max-samples", "3"]
    assert main([*command, "--measure", "spectral-norm-product"]) == 0
    batches = text_batches(Folder(str(tmp_path / "net")), texts, limit=3)
    facts = json.loads(found.read_text())["provenance"]
    expected = own_loss(other, batches, by_tokens=True)
    assert facts["loss_value"] == pytest.approx(expected, rel=1e-5)


def test_a_head_that_was_never_trained_is_refused(tmp_path):
    save_folder(tmp_path, "BertForSequenceClassification", **LABELS)
    config = json.loads((tmp_path / "config.json").read_text())
    config["architectures"] = ["BertForTokenClassification"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    (tmp_path / "model.safetensors").unlink()
    from safetensors.torch import save_file

    model = transformers.BertModel(transformers.BertConfig(**config))
    save_file(model.state_dict(), tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks 'classifier.bias'.* random"):
        Folder(str(tmp_path)).model()


def test_code_in_a_folder_is_not_run(tmp_path):
    save_folder(tmp_path, "BertForMaskedLM")
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {
        "model_type": "made_up",
        "architectures": ["MadeUpForMaskedLM"],
        "auto_map": {
            "AutoConfig": "code.MadeUpConfig",
            "AutoModelForMaskedLM": "code.MadeUpForMaskedLM",
        },
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    ran = tmp_path / "ran"
    (tmp_path / "code.py").write_text(f"open({str(ran)!r}, 'w')\n")
    with pytest.raises(ModelError, match=r"only with --trust-remote-code"):
        Folder(str(tmp_path)).model()
    assert not ran.exists()


class Runs:
    """A payload: its unpickling would make a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self):
        return open, (str(self.path), "w")


def test_code_in_weights_is_not_run(tmp_path):
    model = save_folder(tmp_path, "BertForMaskedLM")
    (tmp_path / "model.safetensors").unlink()
    content = {**model.state_dict(), "payload": Runs(tmp_path / "ran")}
    torch.save(content, tmp_path / "pytorch_model.bin")
    with pytest.raises(ModelError, match="could not be opened"):
        Folder(str(tmp_path)).model()
    assert not (tmp_path / "ran").exists()


def test_nothing_is_downloaded(monkeypatch):
    def connect(*_, **__):
        raise AssertionError("a connection was made")

    monkeypatch.setattr("socket.socket.connect", connect)
    with pytest.raises(ModelError, match="nothing is downloaded"):
        Folder("nobody/such-a-model-is-not-here").config()


BAD = [
    ({"text": "good", "label": "maybe"}, r"line 1: the label 'maybe' is none of neg"),
    ({"text": "good", "label": 3}, r"line 1: the label 3 is none of"),
    ({"text": "good", "label": 0.5}, r"line 1: the label 0.5 is none of"),
    ({"text": "good"}, r"line 1: there is no 'label', only text"),
    ({"label": 1}, r"line 1: there is no 'text', only label"),
]


@pytest.mark.parametrize(("record", "sentence"), BAD)
def test_bad_lines_are_named(record, sentence, tmp_path):
    save_folder(tmp_path / "net", "BertForSequenceClassification", **LABELS)
    texts = save_lines(tmp_path / "a.jsonl", [record])
    with pytest.raises(DataError, match=sentence):
        text_batches(Folder(str(tmp_path / "net")), texts)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("", "holds no texts"), ("[1]", "is no object"), ("{", "line 1, is no JSON")],
)
def test_bad_files_are_named(content, sentence, tmp_path):
    save_folder(tmp_path / "net", "BertForMaskedLM")
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(DataError, match=sentence):
        text_batches(Folder(str(tmp_path / "net")), tmp_path / "a.jsonl")


def test_other_tasks_take_data_of_the_user_s_own(tmp_path):
    save_folder(tmp_path, "BertForQuestionAnswering")
    with pytest.raises(ModelError, match=r"give DATA as file\.py:function"):
        Folder(str(tmp_path)).task()
    save_folder(
        tmp_path,
        "BertForSequenceClassification",
        problem_type="multi_label_classification",
    )
    with pytest.raises(ModelError, match="several labels to a text"):
        Folder(str(tmp_path)).loss()


def test_half_precision_is_measured_in_single(tmp_path):
    model = save_folder(tmp_path, "BertForMaskedLM")
    model.to(torch.bfloat16).save_pretrained(tmp_path)
    assert Folder(str(tmp_path)).model().dtype is torch.float32


def test_long_texts_are_cut(tmp_path):
    save_folder(tmp_path / "net", "BertForMaskedLM")
    texts = save_lines(tmp_path / "a.jsonl", [{"text": "good " * 50}])
    (batch,) = text_batches(Folder(str(tmp_path / "net")), texts)
    assert batch["input_ids"].shape == (1, 8)
    assert tokenizer().pad_token_id == 0
    assert isinstance(texts, Path)
