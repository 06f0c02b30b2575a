"""Weights from what trainers write, and nothing run on the way."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from flatgauge.checkpoints import load_weights
from flatgauge.checkpoints.loading import LeftOutWarning
from flatgauge.checkpoints.reading import content_hash
from flatgauge.errors import ModelError


def network(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def with_prefix(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {prefix + name: tensor for name, tensor in state.items()}


class OfTheUser:
    """A class that is saved with hyperparameters, and cannot be imported elsewhere."""

    def __init__(self):
        self.width = 3


STATE = network(1).state_dict()
SHAPES = {
    "plain": STATE,
    "trainer": {"model": STATE, "optimizer": {"state": {0: {"exp_avg": STATE}}}},
    "nested twice": {"epoch": 3, "states": {"net": STATE}},
    "data parallel": with_prefix("module.", STATE),
    "compiled": with_prefix("_orig_mod.", STATE),
    "compiled, in parallel": {"model": with_prefix("module._orig_mod.", STATE)},
    "compiled inside": {
        name.replace("0.", "0._orig_mod.", 1): tensor for name, tensor in STATE.items()
    },
    "lightning": {
        "state_dict": with_prefix("model.", STATE),
        "optimizer_states": [{"state": {0: {"exp_avg": torch.zeros(3)}}}],
        "hyper_parameters": {
            "args": argparse.Namespace(lr=0.1),
            "best": np.float64(0.5),
            "own": OfTheUser(),
            "folder": Path("here"),
        },
        "global_step": 7,
        "epoch": 2,
    },
    "an optimizer with names": {"model": STATE, "optim": {"momentum": STATE}},
}


def assert_loaded(model: nn.Module) -> None:
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, STATE[name]), name


@pytest.mark.parametrize("shape", SHAPES)
def test_weights_are_found_wherever_they_are(shape, tmp_path):
    torch.save(SHAPES[shape], tmp_path / "a.pt")
    model = network()
    step = load_weights(model, tmp_path / "a.pt")
    assert_loaded(model)
    assert step == {"lightning": 7}.get(shape)


@pytest.mark.parametrize("key", ["ema", "both.ema"])
def test_a_key_chooses_among_several(key, tmp_path):
    state = {"model": network(2).state_dict(), "ema": STATE}
    torch.save(state if key == "ema" else {"both": state}, tmp_path / "a.pt")
    model = network()
    with pytest.raises(ModelError, match=r"several places, .*model.*--key"):
        load_weights(model, tmp_path / "a.pt")
    load_weights(model, tmp_path / "a.pt", key)
    assert_loaded(model)


def test_what_lies_beside_the_model_is_named(tmp_path):
    state = {**with_prefix("model.", STATE), "loss.weight": torch.ones(2)}
    torch.save({"state_dict": state}, tmp_path / "a.ckpt")
    model = network()
    with pytest.warns(
        LeftOutWarning, match=r"'state_dict.model.\*' .* 'state_dict.loss"
    ):
        load_weights(model, tmp_path / "a.ckpt")
    assert_loaded(model)


def test_a_larger_network_is_refused(tmp_path):
    torch.save({**STATE, "3.weight": torch.ones(2)}, tmp_path / "a.pt")
    with pytest.raises(ModelError, match=r"has '3.weight', which the model does not"):
        load_weights(network(), tmp_path / "a.pt")


def test_a_tensor_under_two_names_may_be_saved_once(tmp_path):
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model[1].weight = model[0].weight
    state = {n: t + 1 for n, t in model.state_dict().items() if n != "1.weight"}
    save_file(with_prefix("module.", state), tmp_path / "a.safetensors")
    load_weights(model, tmp_path / "a.safetensors")
    assert torch.equal(model[1].weight, state["0.weight"])


def sharded(folder: Path, shards: dict[str, str] | None = None) -> Path:
    halves = [dict(list(STATE.items())[:4]), dict(list(STATE.items())[4:])]
    names = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    for name, half in zip(names, halves, strict=True):
        save_file(half, folder / name)
    placed = {n: names[i] for i, half in enumerate(halves) for n in half}
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": shards or placed}))
    return index


@pytest.mark.parametrize("named", ["the index", "the folder"])
def test_shards_are_put_together(named, tmp_path):
    index = sharded(tmp_path)
    model = network()
    load_weights(model, index if named == "the index" else tmp_path)
    assert_loaded(model)
    before = content_hash(tmp_path)
    save_file({"0.bias": torch.ones(4)}, tmp_path / "model-00002-of-00002.safetensors")
    assert content_hash(tmp_path) != before


@pytest.mark.parametrize("file", ["model.safetensors", "pytorch_model.bin"])
def test_a_folder_has_its_weights(file, tmp_path):
    write = save_file if file.endswith("safetensors") else torch.save
    write(STATE, tmp_path / file)
    torch.save({"state": 1}, tmp_path / "optimizer.pt")
    model = network()
    load_weights(model, tmp_path)
    assert_loaded(model)


@pytest.mark.parametrize(
    ("shards", "sentence"),
    [
        ({"a": "../other.safetensors"}, "names no files beside it"),
        ({"a": "/etc/passwd"}, "names no files beside it"),
        ({"a": "gone.safetensors"}, "'gone.safetensors', which is not beside it"),
        ({"a": 3}, "is no index of weights"),
    ],
)
def test_an_index_names_files_beside_it_only(shards, sentence, tmp_path):
    with pytest.raises(ModelError, match=sentence):
        load_weights(network(), sharded(tmp_path, shards))


class Runs:
    """A payload: its unpickling calls a function."""

    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


@pytest.mark.parametrize(
    "function", [os.system, subprocess.call, eval, exec, __import__, getattr, print]
)
def test_functions_of_the_standard_library_are_refused(function, tmp_path):
    """Also deep inside what would otherwise be left aside."""
    path = tmp_path / "a.ckpt"
    payload = Runs(function, f"touch {tmp_path / 'ran'}")
    content = {"state_dict": STATE, "hyper_parameters": {"x": [payload]}}
    torch.save(content, path)
    model = network()
    before = [tensor.clone() for tensor in model.state_dict().values()]
    with pytest.raises(ModelError, match="could run code"):
        load_weights(model, path)
    after = model.state_dict().values()
    assert all(map(torch.equal, before, after))
    assert not (tmp_path / "ran").exists()


def test_functions_of_other_packages_are_not_called(tmp_path):
    called_by = Runs(np.save, str(tmp_path / "ran.npy"), np.ones(1).tolist())
    torch.save({"model": STATE, "x": called_by}, tmp_path / "a.pt")
    model = network()
    load_weights(model, tmp_path / "a.pt")
    assert_loaded(model)
    assert not (tmp_path / "ran.npy").exists()


def test_a_whole_model_is_refused(tmp_path):
    torch.save(network(), tmp_path / "a.pt")
    with pytest.raises(ModelError, match=r"a whole object, .* save model\.state_dict"):
        load_weights(network(), tmp_path / "a.pt")


def test_short_names_are_looked_for_by_their_shapes(tmp_path):
    """Those of a single layer stand in front of every layer's tensors."""
    torch.save(
        nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2)).state_dict(), tmp_path / "a"
    )
    layer = nn.Linear(4, 2)
    with pytest.warns(LeftOutWarning, match=r"'1\.\*' is the model; '0\.weight'"):
        load_weights(layer, tmp_path / "a")
    with pytest.raises(
        ModelError, match=r"'weight' has shape \(4, 3\), but the model's"
    ):
        load_weights(nn.Linear(7, 7), tmp_path / "a")


@pytest.mark.parametrize("content", [b"", b"hello", None], ids=["none", "text", "cut"])
def test_a_broken_file_is_called_so(content, tmp_path):
    path = tmp_path / "a.pt"
    torch.save(STATE, path)
    path.write_bytes(path.read_bytes()[:500] if content is None else content)
    with pytest.raises(
        ModelError, match=r"is cut short \(\w+\): copy it again, or save"
    ):
        load_weights(network(), path)
