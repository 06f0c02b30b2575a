"""A killed process loses one run at most, and what it makes in the end is the same."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.stored import without_times
from support.synthetic_paper import SECOND_WRITE

ROOT = Path(__file__).parents[2]
PATHS = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
NAMES = ["first", "second", "third", "fourth"]


def start(folder: Path, hold: str = "", module: str = "support.synthetic_paper"):
    return subprocess.Popen(
        [sys.executable, "-m", module, "--quick", "--out", str(folder)],
        cwd=ROOT,
        env=os.environ
        | {"PYTHONPATH": PATHS, "HOLD": hold, "LOG": str(folder) + ".log"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(folder: Path, module: str = "support.synthetic_paper") -> str:
    process = start(folder, module=module)
    out, _ = process.communicate(timeout=600)
    assert process.returncode == 0, out
    return out


def kill(process: subprocess.Popen[str]) -> str:
    process.send_signal(signal.SIGKILL)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    return out


def log(folder: Path) -> list[str]:
    path = Path(str(folder) + ".log")
    return path.read_text().splitlines() if path.exists() else []


def start_and_kill(folder: Path, hold: str) -> str:
    process = start(folder, hold)
    until = time.monotonic() + 120
    while f"held in {hold}" not in log(folder):
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < until
        time.sleep(0.05)
    return kill(process)


def files(folder: Path) -> set[str]:
    return {path.name for path in (folder / "results").iterdir()}


def bytes_of(folder: Path, name: str) -> bytes:
    return (folder / "results" / f"{name}.json").read_bytes()


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("papers") / "whole"
    finish(folder)
    assert files(folder) == {f"{name}.json" for name in NAMES}
    assert (folder / "figures" / "losses.svg").is_file()
    return folder


def test_killed_in_the_middle_of_a_run(whole, tmp_path):
    folder = tmp_path / "killed"
    start_and_kill(folder, hold="third")
    assert files(folder) == {"first.json", "second.json"}
    finished = {name: bytes_of(folder, name) for name in NAMES[:2]}

    out = finish(folder)

    assert "synthetic first: already done\nsynthetic second: already done\n" in out
    assert {name: bytes_of(folder, name) for name in NAMES[:2]} == finished
    assert [log(folder).count(f"start {name}") for name in NAMES] == [1, 1, 2, 1]
    assert without_times(folder) == without_times(whole)


def test_killed_in_the_middle_of_writing(whole, tmp_path):
    folder = tmp_path / "killed"
    start_and_kill(folder, hold=SECOND_WRITE)
    assert "first.json" in files(folder)
    (cut,) = (folder / "results").glob("second.json.*.partial")
    with pytest.raises(ValueError, match=r"delimiter|Unterminated|Expecting"):
        json.loads(cut.read_text())

    finish(folder)

    cut.unlink()
    assert [log(folder).count(f"start {name}") for name in NAMES] == [1, 2, 1, 1]
    assert without_times(folder) == without_times(whole)


def test_a_file_cut_short_is_said_and_made_again(whole, tmp_path):
    folder = tmp_path / "cut"
    shutil.copytree(whole, folder)
    path = folder / "results" / "second.json"
    path.write_bytes(path.read_bytes()[:100])

    out = finish(folder)

    assert f"synthetic second: '{path}' is not whole, so it is made again\n" in out
    assert log(folder) == ["start second"]
    assert without_times(folder) == without_times(whole)


def test_nothing_is_made_twice(whole):
    before = {path: path.read_bytes() for path in whole.rglob("*") if path.is_file()}
    out = finish(whole)
    assert out == "".join(f"synthetic {name}: already done\n" for name in NAMES)
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_a_real_paper_killed_in_its_longest_run(tmp_path):
    paper = importlib.import_module("papers.tsuzuku2019.run").PAPER
    order = [run.name for run in paper.runs(True)]
    module = "papers.tsuzuku2019.run"
    whole, folder = tmp_path / "whole", tmp_path / "killed"
    finish(whole, module)
    seconds = [json.loads(bytes_of(whole, name))["times"]["seconds"] for name in order]
    longest = max(range(1, len(order)), key=seconds.__getitem__)

    process = start(folder, module=module)
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(f"{paper.name} {order[longest - 1]}: "):
            break
    time.sleep(min(1.0, seconds[longest] / 4))
    kill(process)
    finished = {name: bytes_of(folder, name) for name in order[:longest]}
    assert not (folder / "results" / f"{order[longest]}.json").exists()

    out = finish(folder, module)

    assert out.count("already done") == longest
    assert {name: bytes_of(folder, name) for name in order[:longest]} == finished
    assert without_times(folder) == without_times(whole)
