from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def test_without_type_checks():
    folder = Path(__file__).parent
    options = ["-q", "-o", "addopts=--import-mode=importlib", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            *options,
            str(folder / "support" / "plain_checks.py"),
        ],
        cwd=folder.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-5000:]
