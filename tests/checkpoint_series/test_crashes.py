"""Whenever the process ends, the same command finishes with the same numbers."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from support.runs import save_run
from support.users import namespace, net

import flatgauge as fg
from flatgauge import files
from flatgauge.checkpoint_series import running
from flatgauge.cli import main

__all__ = ["net"]

ENTRY = Path(sys.executable).parent / "flatgauge"
TRACE = "hessian-trace"
COUNT, KILLS = 20, 10


def values(folder: Path) -> dict[str, float | None]:
    """The numbers in a store, by checkpoint."""
    found = [fg.Report.from_json(path) for path in folder.glob("*.json")]
    return {one.extras["checkpoint"]["name"]: one[TRACE].value for one in found}


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.glob("*.json")}


class Killed(BaseException):
    """As a signal that nothing catches."""


def dying(function, at: int, how: type[BaseException] = Killed):
    """The function, which dies at one of its calls."""
    calls = 0

    def called(*args: Any, **keywords: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == at:
            raise how
        return function(*args, **keywords)

    return called


@pytest.mark.parametrize("place", ["measuring", "writing", "renaming"])
def test_a_crash_loses_the_checkpoint_in_hand_alone(place, net, tmp_path, monkeypatch):
    save_run(net, tmp_path / "ck", 4)
    user = namespace(net)

    def run(store: str) -> fg.Series:
        given = user["model"](), user["data"](), tmp_path / "ck", TRACE
        return fg.series(*given, store=tmp_path / store)

    whole = run("whole")
    with monkeypatch.context() as patch:
        target: Any
        target, name = {
            "measuring": (running, "measure"),
            "writing": (Path, "write_bytes"),
            "renaming": (files.os, "replace"),
        }[place]
        patch.setattr(target, name, dying(getattr(target, name), at=3))
        with pytest.raises(Killed):
            run("store")
    before = times(tmp_path / "store")
    assert len(before) == 2
    again = run("store")
    assert before.items() <= times(tmp_path / "store").items()
    assert values(tmp_path / "store") == pytest.approx(values(tmp_path / "whole"))
    assert [p.step for p in again.points] == [p.step for p in whole.points]


def await_more(store: Path, count: int, most: float = 60.0) -> None:
    """Wait until there are more results than that, or so many seconds have gone by."""
    end = time.monotonic() + most
    while len(times(store)) <= count and time.monotonic() < end:
        time.sleep(0.001)


@pytest.mark.slow
@pytest.mark.skipif(not ENTRY.exists(), reason="needs the entry point")
def test_kill_9_at_ten_random_moments(net, tmp_path):
    save_run(net, tmp_path / "ck", COUNT)
    # Slow enough that a kill finds most of the series still to be done.
    code = (
        "import net, time\ndef model():\n    time.sleep(0.1)\n    return net.model()\n"
    )
    (tmp_path / "slow.py").write_text(code)
    command = [str(ENTRY), "compare", "slow.py:model", "net.py:data", "ck"]
    command += ["--measure", TRACE, "--measure", "hessian-spectral-norm"]
    command += ["--json", "a.json"]
    quiet = {"stdout": subprocess.DEVNULL, "cwd": tmp_path}
    started = time.monotonic()
    process = subprocess.Popen([*command, "--store", "whole"], **quiet)
    await_more(tmp_path / "whole", 0)
    to_the_first = time.monotonic() - started
    assert process.wait() == 0
    (tmp_path / "a.json").unlink()
    draw, store = random.Random(0), tmp_path / "store"
    before: dict[str, int] = {}
    for _ in range(KILLS):
        process = subprocess.Popen([*command, "--store", "store"], **quiet)
        if draw.random() < 0.3:
            # Wherever it is: importing, reading the data, at the first checkpoint, which
            # on a machine that is less busy than before comes sooner.
            await_more(store, len(before), draw.uniform(0, to_the_first))
        else:
            # In the middle of the series.
            await_more(store, len(before))
            time.sleep(draw.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        after = times(store)
        assert before.items() <= after.items(), "a stored result was measured again"
        before = after
    assert 0 < len(before) < COUNT
    subprocess.run([*command, "--store", "store"], check=True, **quiet)
    assert before.items() <= times(store).items()
    assert values(store) == pytest.approx(values(tmp_path / "whole"), rel=1e-9)
    assert len(values(store)) == COUNT
    assert (tmp_path / "a.json").exists()


def test_ctrl_c_says_that_the_same_command_goes_on(net, tmp_path, monkeypatch, capsys):
    save_run(net, tmp_path / "ck", 3)
    monkeypatch.setattr(
        running, "measure", dying(running.measure, 2, KeyboardInterrupt)
    )
    assert main(["compare", f"{net}:model", f"{net}:data", "ck"]) == 130
    assert "in 'flatgauge-results': the same command goes on" in capsys.readouterr().err
    assert len(times(tmp_path / "flatgauge-results")) == 1
