"""The installed entry point, as a process of its own."""

from __future__ import annotations

import os
import pty
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from support.users import net

import flatgauge

__all__ = ["net"]

ENTRY = Path(sys.executable).parent / "flatgauge"
SLOW = """
import sys, time
from net import model, data

def wait():
    print("waiting", flush=True)
    time.sleep({seconds})
    return data()
"""

pytestmark = pytest.mark.skipif(not ENTRY.exists(), reason="needs the entry point")


def run(
    arguments: Sequence[str], folder: Path, **more
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(ENTRY), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        **more,
    )


def test_help_needs_no_torch():
    source = Path(flatgauge.__file__).parent
    code = f"""
import sys, types
package = types.ModuleType("flatgauge")
package.__path__ = [{str(source)!r}]
sys.modules["flatgauge"] = package
from flatgauge.cli import main
assert main(["--help"]) == main(["measure", "--help"]) == 0
sys.exit(sum(name in sys.modules for name in ("torch", "numpy", "jinja2", "matplotlib")))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert done.returncode == 0, done.stderr.decode()


def test_importing_takes_less_than_a_tenth_of_a_second():
    code = """
import time
begun = time.process_time()
import flatgauge
print(time.process_time() - begun)
"""
    taken = [
        float(subprocess.check_output([sys.executable, "-c", code], timeout=60))
        for _ in range(3)
    ]
    # The processor's own seconds, and the best: other work on the machine counts for nothing.
    assert min(taken) < 0.1


def test_trainers_and_data_frames_are_extras(net, tmp_path):
    code = """
import sys
extras = ("lightning", "pytorch_lightning", "transformers", "accelerate", "pandas")
sys.modules |= dict.fromkeys(extras)
from flatgauge.cli import main
sys.exit(main(sys.argv[1:]))
"""
    arguments = ["measure", f"{net}:model", f"{net}:data", "--measure", "hessian-trace"]
    page = tmp_path / "page.html"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments, "--out", str(page)],
        capture_output=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert page.exists()


@pytest.mark.parametrize("encoding", ["ascii", "cp1252"])
def test_an_encoding_without_greek_letters(encoding, tmp_path):
    env = {**os.environ, "PYTHONIOENCODING": encoding}
    done = run(["list"], tmp_path, env=env, encoding=encoding)
    assert done.returncode == 0, done.stderr
    assert "epsilon-sharpness" in done.stdout


def test_interrupt_is_one_sentence_and_leaves_no_file(net, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW.format(seconds=60))
    before = sorted(path.name for path in tmp_path.iterdir())
    process = subprocess.Popen(
        [str(ENTRY), "measure", "net.py:model", "slow.py:wait", "--json", "a.json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        # Started in the background, the tests themselves may have been told to ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "flatgauge: stopped; no half-written file is left.\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_write_that_fails_half_way_leaves_nothing(net, tmp_path):
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))

    before = sorted(path.name for path in tmp_path.iterdir())
    done = run(
        ["measure", "net.py:model", "net.py:data", "--json", "a.json"],
        tmp_path,
        preexec_fn=limit,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
    )
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "'a.json' could not be written (File too large)" in done.stderr
    assert "normalized-sharpness" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_the_bar_is_for_terminals_only(net, tmp_path):
    (tmp_path / "slow.py").write_text(SLOW.format(seconds=4))
    arguments = [
        "measure",
        "net.py:model",
        "slow.py:wait",
        "--measure",
        "hessian-trace",
    ]
    quiet = run(arguments, tmp_path)
    assert quiet.returncode == 0
    assert quiet.stderr == ""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(ENTRY), *arguments],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", "COLUMNS": "100"},
    )
    os.close(theirs)
    seen = b""
    end = time.monotonic() + 120
    while time.monotonic() < end:
        if not select.select([ours], [], [], 1.0)[0]:
            continue
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        seen += part
    os.close(ours)
    assert process.wait(timeout=60) == 0
    assert b"loading" in seen
    assert b"left" in seen


def test_shells_can_complete(tmp_path):
    completing = {
        "_FLATGAUGE_COMPLETE": "complete_bash",
        "COMP_WORDS": "flatgauge mea",
        "COMP_CWORD": "1",
    }
    done = run([], tmp_path, env={**os.environ, **completing})
    assert done.stdout.split() == ["measure"]
