"""What counts as finished, and what a stored file looks like."""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import replace

import pytest
import torch

from flatgauge import datasets
from papers import store
from papers.data import QUICK_TRAIN
from papers.experiment import Context, Run

QUICK = Context(quick=True, data=None, device=torch.device("cpu"))
RUN = Run("one", {"seed": 0, "widths": (4, 2)}, lambda context, settings: {})
RESULT = {"b": 0.1 + 0.2, "a": [math.nan, math.inf, 1]}


@pytest.fixture
def folder(tmp_path):
    store.save(tmp_path, RUN, QUICK, RESULT, times={"seconds": 1.5})
    return tmp_path


def test_a_stored_file_is_sorted_json_without_nan(folder):
    text = (folder / "one.json").read_text()
    record = json.loads(text, parse_constant=pytest.fail)
    parts = ["provenance", "result", "revision", "run", "settings", "times"]
    assert list(record) == parts
    assert record["result"] == {"a": [None, None, 1], "b": 0.30000000000000004}
    assert record["settings"] == {"seed": 0, "widths": [4, 2]}
    assert text == json.dumps(record, indent=1) + "\n"
    assert record["times"]["seconds"] == 1.5
    assert set(record["times"]) == {"seconds", "finished", "threads"}


def test_provenance_names_what_made_it(folder):
    known = json.loads((folder / "one.json").read_text())["provenance"]
    assert known["torch"] == torch.__version__
    assert known["device"] == "cpu"
    versions = {"flatgauge", "torch", "numpy", "scipy", "python"}
    assert set(known) == versions | {"device", "commit", "quick"}


def test_a_result_from_data_names_them_by_their_digest(tmp_path):
    store.save(
        tmp_path, replace(RUN, needs=("data",)), QUICK, RESULT, times={"seconds": 1.5}
    )
    known = json.loads((tmp_path / "one.json").read_text())["provenance"]
    pixels, labels = datasets.digits()
    parts = (slice(QUICK_TRAIN), slice(QUICK_TRAIN, None))
    content = [t[part].numpy().tobytes() for part in parts for t in (pixels, labels)]
    assert known["data"] == hashlib.sha256(b"".join(content)).hexdigest()


def test_a_run_on_the_cpu_stays_there():
    gpu = replace(QUICK, device=torch.device("cuda"))
    assert RUN.placed(gpu).device.type == "cuda"
    assert replace(RUN, on_cpu=True).placed(gpu).device.type == "cpu"


def test_no_git_no_commit(monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert store.provenance(QUICK)["commit"] == "unknown"


def test_a_finished_run_is_found(folder):
    record, flaw = store.find(folder, RUN, quick=True)
    assert record is not None
    assert record["result"]["b"] == RESULT["b"]
    assert flaw == ""
    assert store.load(folder, [RUN], quick=True)["one"]["b"] == RESULT["b"]


def test_a_run_never_made_has_no_flaw(folder):
    other = replace(RUN, name="two")
    assert store.find(folder, other, quick=True) == (None, "")
    assert dict(store.load(folder, [other], quick=True)) == {}


def test_other_settings_are_stale(folder):
    record, flaw = store.find(folder, replace(RUN, settings={"seed": 1}), quick=True)
    assert record is None
    assert "was made with other settings" in flaw


def test_another_revision_is_stale(folder):
    record, flaw = store.find(folder, replace(RUN, revision=2), quick=True)
    assert record is None
    assert "is of revision 1 of the run, which is now at 2" in flaw


def test_the_other_form_is_stale(folder):
    record, flaw = store.find(folder, RUN, quick=False)
    assert record is None
    assert "was made in quick form" in flaw


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "null", '{"run": "one"}'])
def test_what_is_not_whole_does_not_count(folder, text):
    (folder / "one.json").write_text(text)
    record, flaw = store.find(folder, RUN, quick=True)
    assert record is None
    assert "is not whole" in flaw
    assert dict(store.load(folder, [RUN], quick=True)) == {}


def test_every_cut_of_a_file_is_seen(folder):
    whole = (folder / "one.json").read_bytes()
    for length in range(len(whole) - 2):
        (folder / "one.json").write_bytes(whole[:length])
        assert store.find(folder, RUN, quick=True)[0] is None


def test_an_unfinished_write_leaves_the_old_file(folder, monkeypatch):
    before = (folder / "one.json").read_bytes()

    def fail(file):
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OSError, match="no space"):
        store.save(folder, RUN, QUICK, {}, times={"seconds": 0.0})
    assert (folder / "one.json").read_bytes() == before


def test_a_tensor_is_no_plain_result(folder):
    with pytest.raises(TypeError, match="Tensor is not JSON"):
        store.save(
            folder, RUN, QUICK, {"value": torch.ones(())}, times={"seconds": 0.0}
        )
