"""Users' own models through the installed entry point, every command."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ENTRY = Path(sys.executable).parent / "flatgauge"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not ENTRY.exists(), reason="needs the entry point"),
]

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn

def images(channels=1, size=8):
    random = torch.Generator().manual_seed(1)
    pixels = torch.randn(8, channels, size, size, generator=random)
    return pixels, torch.randint(0, 3, (8,), generator=random)

def save():
    for seed, name in enumerate(("one.pt", "two.pt")):
        network = model()
        torch.manual_seed(seed)
        for parameter in network.parameters():
            parameter.data.mul_(1 + 0.2 * torch.randn_like(parameter))
        torch.save(network.state_dict(), name)
"""
MODELS = {
    "cnn": """
def model():
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 3)
    )

def data():
    return images()
""",
    "resnet": """
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.norm2 = nn.BatchNorm2d(width)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(h)))

class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.block = Block(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        h = self.block(F.relu(self.norm(self.stem(x))))
        return self.head(h.mean((2, 3)))

def model():
    torch.manual_seed(0)
    return ResNet()

def data():
    return images()
""",
    "gpt2": """
def model():
    from transformers import GPT2Config, GPT2LMHeadModel
    torch.manual_seed(0)
    return GPT2LMHeadModel(GPT2Config(
        vocab_size=11, n_positions=6, n_embd=8, n_layer=1, n_head=2,
        bos_token_id=0, eos_token_id=0,
        attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0,
    ))

def data():
    random = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, 11, (4, 6), generator=random)
    return [{"input_ids": tokens, "labels": tokens}]
""",
    "vit": """
def model():
    from transformers import ViTConfig, ViTForImageClassification
    torch.manual_seed(0)
    return ViTForImageClassification(ViTConfig(
        hidden_size=8, num_hidden_layers=1, num_attention_heads=2, intermediate_size=12,
        image_size=8, patch_size=4, num_channels=1, num_labels=3,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ))

def data():
    pixels, labels = images()
    return [{"pixel_values": pixels, "labels": labels}]
""",
    "regression": """
def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2)).double()

def data():
    random = torch.Generator().manual_seed(1)
    inputs = torch.randn(9, 3, generator=random, dtype=torch.float64)
    return inputs, torch.randn(9, 2, generator=random, dtype=torch.float64)
""",
}


@pytest.mark.parametrize("name", list(MODELS))
def test_every_command(name, tmp_path):
    (tmp_path / "net.py").write_text(HEAD + MODELS[name])

    def call(command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, timeout=900
        )
        assert done.returncode == 0, f"{command}: {done.stderr}"
        assert all(line.startswith("note:") for line in done.stderr.splitlines())
        return done.stdout

    call([sys.executable, "-c", "import net; net.save()"])
    more = ["--loss", "mse"] if name == "regression" else []
    quick = ["--measure", "hessian-spectral-norm", "--measure", "fisher-rao-norm"]
    mode = ["--mode", "train"] if name == "resnet" else []
    for command, own in {
        "measure": [],
        "audit": ["--elements", "1", *quick],
        "compare": ["one=one.pt", "two=two.pt", *quick],
        "landscape": ["--points", "5", "--to", "one.pt", *mode],
        "spectrum": ["--probes", "2", "--steps", "8", "--k", "1"],
        "symmetries": [],
    }.items():
        outputs = ["--json", f"{command}.json", "--out", f"{command}.html"]
        arguments = [command, "net.py:model", "net.py:data", *own, *more, *outputs]
        assert f"wrote {command}.html" in call([str(ENTRY), *arguments])
    call([str(ENTRY), "report", "measure.json", "--out", "again.html"])
    assert (tmp_path / "again.html").read_text() == (
        tmp_path / "measure.html"
    ).read_text()
    found = json.loads((tmp_path / "measure.json").read_text())
    assert len(found["measurements"]) == 9
    audit = json.loads((tmp_path / "audit.json").read_text())["extras"]["audit"]
    assert audit["rows"]
    assert not [row for row in audit["rows"] if row["verdict"] == "claim violated"]
