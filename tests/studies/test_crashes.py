"""Whenever a process ends, what was stored stays, and the rest is measured."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest
from support.runs import save_study
from support.users import namespace, net

import flatgauge as fg
from flatgauge.results import Report

__all__ = ["net"]

TRACE = "hessian-trace"
COUNT, KILLS = 60, 10
# Slow enough that ten kills find something left to do; every build is written down.
SLOW = """
import os, time
import net

def model():
    with open("builds", "a") as file:
        file.write(f"{os.getpid()}\\n")
    time.sleep(0.5)
    return net.model()
"""


class Command:
    """A study that is run by a command, and what it has stored."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.store = folder / "runs" / "flatgauge-study"
        command = [sys.executable, "-m", "flatgauge", "study", "slow.py:model"]
        command += ["net.py:data", "runs", "--target", "gap", "--measure", TRACE]
        self.command = [*command, "--json", "a.json"]
        # Ray writes a file into the home of whoever runs it, and asks the network.
        quiet = {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
        self.environment = {**os.environ, **quiet}
        self.commands: set[int] = set()

    def start(self) -> None:
        with (self.folder / "stderr").open("a") as errors:
            self.process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=self.environment,
                stdout=subprocess.DEVNULL,
                stderr=errors,
            )
        self.commands.add(self.process.pid)

    def kill(self) -> None:
        """Kill the command itself; its workers end with the network in hand."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def builders(self) -> list[int]:
        """The processes that have built a network, the last one last."""
        path = self.folder / "builds"
        lines = path.read_text().split() if path.exists() else []
        return [one for one in map(int, lines) if one not in self.commands]

    def reports(self) -> dict[str, tuple[float, Report]]:
        """When each report was stored, and the report."""
        if not (self.store / "study.sqlite").exists():
            return {}
        with sqlite3.connect(self.store / "study.sqlite", timeout=60) as file:
            try:
                rows = file.execute(
                    "SELECT name, stored, report FROM networks WHERE report IS NOT NULL"
                ).fetchall()
            except sqlite3.OperationalError:
                # Killed before there was a table.
                return {}
        return {
            name: (when, Report.from_dict(json.loads(text)))
            for name, when, text in rows
        }

    def await_more(self, count: int) -> None:
        """Wait until there are more results than that."""
        end = time.monotonic() + 120
        while len(self.reports()) <= count and time.monotonic() < end:
            assert self.process.poll() is None, "the study ended before the last kill"
            time.sleep(0.02)

    def worker(self, draw: random.Random) -> int:
        """One of the workers that are alive and have built a network, once there is one."""
        end = time.monotonic() + 120
        while time.monotonic() < end:
            assert self.process.poll() is None, "the study ended before the last kill"
            alive = [one for one in dict.fromkeys(self.builders()) if is_alive(one)]
            if alive:
                return draw.choice(alive)
            time.sleep(0.01)
        raise AssertionError("no worker came up")

    def kill_worker(self, draw: random.Random) -> None:
        """Kill a worker at some moment of its work."""
        while True:
            self.worker(draw)
            time.sleep(draw.uniform(0, 0.7))
            # One whose command was killed may have come to its end.
            with suppress(ProcessLookupError):
                os.kill(self.worker(draw), signal.SIGKILL)
                return


def is_alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def expected(net: str, folder: Path) -> dict[str, float]:
    """The numbers of a study that nothing has interrupted."""
    user = namespace(net)
    table = folder / "runs" / "study.csv"
    store = folder / "whole"
    study = fg.study(
        user["model"](), user["data"](), table, TRACE, target="gap", store=store
    )
    assert len(study.networks) == COUNT
    return {one.name: one.report[TRACE].value for one in study.networks}


def check_after_kills(command: Command, net: str, share_of_commands: float) -> None:
    """Kill processes at ten random moments, then let the study end.

    Args:
        command: the study.
        net: the user's file.
        share_of_commands: how many of the kills are of the command itself.
    """
    save_study(net, command.folder / "runs", COUNT)
    (command.folder / "slow.py").write_text(SLOW)
    draw = random.Random(0)
    command.start()
    before: dict[str, tuple[float, Report]] = {}
    for _ in range(KILLS):
        if draw.random() < share_of_commands:
            if draw.random() < 0.7:
                command.await_more(len(before))
            # Else wherever it is: importing, reading the data.
            time.sleep(draw.uniform(0, 0.7))
            command.kill()
            command.start()
        else:
            if draw.random() < 0.7:
                command.await_more(len(before))
            # Else at any network, be it the first of a process.
            command.kill_worker(draw)
        after = command.reports()
        for name, (when, _) in before.items():
            assert after[name][0] == when, "a stored result was measured again"
        before = after
    assert 0 < len(before) < COUNT
    ended = command.process.wait(timeout=300)
    assert ended == 0, (command.folder / "stderr").read_text()
    found = command.reports()
    for name, (when, _) in before.items():
        assert found[name][0] == when
    # A kill loses the network in hand of one process at most.
    assert COUNT <= len(command.builders()) <= COUNT + KILLS
    values = {name: one[TRACE].value for name, (_, one) in found.items()}
    assert values == pytest.approx(expected(net, command.folder), rel=1e-9)
    study = json.loads((command.folder / "a.json").read_text())["extras"]["study"]
    assert len(study["networks"]) == COUNT
    assert not study["failures"]


@pytest.fixture
def command(tmp_path) -> Iterator[Command]:
    """A study, which ends with the test."""
    made = Command(tmp_path)
    yield made
    if made.commands:
        made.kill()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_kill_9_at_ten_random_moments(command, net):
    command.command += ["--jobs", "2"]
    check_after_kills(command, net, 0.3)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray")
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds processes in /proc")
def test_kill_9_of_workers_of_ray_at_ten_random_moments(command, net):
    command.command += ["--ray"]
    check_after_kills(command, net, 0.0)


@pytest.mark.slow
def test_processes_give_what_one_process_gives(net, tmp_path):
    save_study(net, tmp_path / "runs", 6)
    command = [
        sys.executable,
        "-m",
        "flatgauge",
        "study",
        "net.py:model",
        "net.py:data",
    ]
    command += ["runs", "--target", "gap", "--measure", TRACE, "--store"]
    both = [
        subprocess.Popen([*command, "shared", "--json", f"{name}.json"], cwd=tmp_path)
        for name in "ab"
    ]
    assert [one.wait() for one in both] == [0, 0]
    last = [*command, "own", "--json", "c.json", "--jobs", "2"]
    subprocess.run(last, cwd=tmp_path, check=True)
    studies = [
        json.loads((tmp_path / f"{name}.json").read_text())["extras"]["study"]
        for name in "abc"
    ]
    assert studies[0] == studies[1]
    assert studies[0]["statistics"] == studies[2]["statistics"]


@pytest.mark.slow
def test_processes_that_cannot_begin_end_the_study(net, tmp_path):
    save_study(net, tmp_path / "runs", 2)
    # Without the line that a script needs, each process begins the study again.
    (tmp_path / "script.py").write_text(
        "import flatgauge as fg, net\n"
        f"fg.study(net.model(), net.data(), 'runs/study.csv', '{TRACE}', target='gap', "
        "jobs=2)\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode
    assert '__name__ == "__main__"' in done.stderr.splitlines()[-1]
