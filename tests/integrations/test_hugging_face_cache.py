"""Names in transformers' cache, and a folder's own code where the user trusts it.

transformers reads where its cache is when it is imported: a process of its own each time.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.folders import TEXTS, save_folder, save_lines

pytest.importorskip("transformers")
pytestmark = pytest.mark.slow

COMMIT = "0123456789abcdef0123456789abcdef01234567"
CODE = """
from torch import nn
from transformers import BertConfig, PreTrainedModel
from transformers.modeling_outputs import SequenceClassifierOutput

class OwnConfig(BertConfig):
    model_type = "made_up"

class OwnForSequenceClassification(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.classifier = nn.Linear(config.hidden_size, config.num_labels)
        self.post_init()

    def forward(self, input_ids, attention_mask=None, **_):
        found = self.words(input_ids) * attention_mask[..., None]
        return SequenceClassifierOutput(logits=self.classifier(found.sum(1).tanh()))
"""
SAVE = """
import sys
from own import OwnConfig, OwnForSequenceClassification
OwnConfig.register_for_auto_class()
OwnForSequenceClassification.register_for_auto_class("AutoModelForSequenceClassification")
config = OwnConfig(vocab_size=14, hidden_size=4, num_labels=2, pad_token_id=0)
OwnForSequenceClassification(config).save_pretrained(sys.argv[1])
"""


def python(
    home: Path, *arguments: str, **more: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "HF_HOME": str(home), "OMP_NUM_THREADS": "1", **more}
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        env=environment,
        timeout=300,
    )


def measured(home: Path, place: str, *more: str) -> subprocess.CompletedProcess[str]:
    records = [{"text": text, "label": len(label) % 2} for text, label in TEXTS]
    texts = save_lines(home.parent / "texts.jsonl", records)
    command = ["measure", f"hf:{place}", str(texts), "--json", "-", *more]
    command += ["--measure", "hessian-spectral-norm"]
    return python(home, "-m", "flatgauge", *command)


def test_a_name_is_found_in_the_cache(tmp_path):
    cached = tmp_path / "home" / "hub" / "models--nobody--tiny"
    save_folder(cached / "snapshots" / COMMIT, "BertForSequenceClassification")
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(COMMIT)
    done = measured(tmp_path / "home", "nobody/tiny")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["provenance"]["samples"] == len(TEXTS)
    done = measured(tmp_path / "elsewhere", "nobody/tiny")
    assert done.returncode == 2
    assert "nothing is downloaded" in " ".join(done.stderr.split())


def test_a_folder_s_own_code_is_run_where_the_user_says_so(tmp_path):
    folder, home = tmp_path / "net", tmp_path / "home"
    # The tokenizer of one, with the model of the other.
    save_folder(folder, "BertForSequenceClassification")
    (tmp_path / "own.py").write_text(CODE)
    saved = python(home, "-c", SAVE, str(folder), PYTHONPATH=str(tmp_path))
    assert saved.returncode == 0, saved.stderr
    assert (folder / "own.py").exists()
    refused = measured(home, str(folder))
    assert refused.returncode == 2
    assert "--trust-remote-code" in refused.stderr
    done = measured(home, str(folder), "--trust-remote-code")
    assert done.returncode == 0, done.stderr
    facts = json.loads(done.stdout)["provenance"]
    assert facts["model"] == "OwnForSequenceClassification"
    assert facts["samples"] == len(TEXTS)
