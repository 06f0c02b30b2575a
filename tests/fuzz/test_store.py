"""Results on disk, and runs that go on where they stopped."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fuzz import __main__ as command
from fuzz.store import Store, summary

ROOT = Path(__file__).parents[2]


def a_result(index: int, failed: bool = False) -> dict:
    verdict = "WRONG" if failed else "right"
    finding = {"what": "value", "verdict": verdict, "got": 2.0, "want": [1.0]}
    return {
        "seed": 3, "index": index, "seconds": 0.5, "failed": failed,
        "network": "vector 2", "findings": [finding],
    }  # fmt: skip


def test_a_line_that_was_cut_off_is_done_again(tmp_path):
    store = Store(3, tmp_path)
    store.add(a_result(0))
    store.add(a_result(1))
    store.path.write_text(store.path.read_text()[:-20])
    assert store.done() == {0}


def run(tmp_path, monkeypatch, *more: str) -> list[int]:
    asked: list[int] = []

    def fake(seed, indices, jobs, device):
        for index in indices:
            asked.append(index)
            yield a_result(index, failed=index == 4)

    monkeypatch.setattr(command, "run", fake)
    words = ["fuzz", "--folder", str(tmp_path), "--seed", "3", *more]
    monkeypatch.setattr(sys, "argv", words)
    run.code = command.main()
    return asked


def test_a_run_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    assert run(tmp_path, monkeypatch, "--count", "3") == [0, 1, 2]
    assert run.code == 0
    assert run(tmp_path, monkeypatch, "--count", "6") == [3, 4, 5]
    assert run.code == 1
    said = capsys.readouterr().out
    assert "FAILED seed 3, network 4: vector 2" in said
    assert "python -m fuzz --seed 3 --only 4" in said
    assert run(tmp_path, monkeypatch, "--count", "6") == []
    assert run.code == 1
    assert run(tmp_path, monkeypatch, "--count", "2", "--fresh") == [0, 1]
    assert "1 with failures" in summary([a_result(0), a_result(1, failed=True)])


@pytest.mark.slow
def test_two_hundred_networks(tmp_path):
    words = [sys.executable, "-m", "fuzz", "--count", "200", "--seed", "14"]
    done = subprocess.run(
        [*words, "--folder", str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
