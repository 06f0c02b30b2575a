"""One JSON file a run: written whole or not at all, with provenance and times.

On a CPU everything but "times" is the same, byte for byte, whenever the same run is made
again on the same machine. On a GPU the measures may differ in their last digits.
"""

from __future__ import annotations

import json
import math
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import scipy
import torch

import flatgauge
from papers.data import digest
from papers.experiment import Context, Results, Run

# What a result depends on.
CODE = (":(top,glob)src/**/*.py", ":(top,glob)papers/**/*.py")
PARTS = ("run", "revision", "settings", "result", "provenance", "times")


def encode(data: Any) -> str:
    """JSON with sorted keys; NaN and infinities become null."""
    return json.dumps(_finite(data), sort_keys=True, indent=1, allow_nan=False) + "\n"


def plain(data: Any) -> Any:
    """The data as they are read back from a file: tuples are lists, keys are strings."""
    return json.loads(encode(data))


def write(path: Path, text: str) -> None:
    """Put a whole file in place at once, so that a killed process leaves none cut short."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # A name of its own: another process may be writing the same file.
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    with partial.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)


def save(
    folder: Path,
    run: Run,
    context: Context,
    result: dict[str, Any],
    times: dict[str, Any],
) -> None:
    """Store the result of a finished run, and what took how many seconds."""
    record = {
        "run": run.name,
        "revision": run.revision,
        "settings": run.settings,
        "result": result,
        "provenance": provenance(context) | _data(context, run),
        "times": {
            **times,
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "threads": torch.get_num_threads(),
        },
    }
    write(folder / f"{run.name}.json", encode(record))


def find(folder: Path, run: Run, quick: bool) -> tuple[dict[str, Any] | None, str]:
    """The stored record of a run, or None and what is wrong with the file, if any."""
    path = folder / f"{run.name}.json"
    if not path.is_file():
        return None, ""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None, f"'{path}' is not whole"
    if not _is_whole(record):
        return None, f"'{path}' is not whole"
    if record["settings"] != plain(run.settings):
        return None, f"'{path}' was made with other settings"
    if record["revision"] != run.revision:
        return None, (
            f"'{path}' is of revision {record['revision']} of the run, "
            f"which is now at {run.revision}"
        )
    if record["provenance"]["quick"] != quick:
        return None, f"'{path}' was made in {'full' if quick else 'quick'} form"
    return record, ""


def load(folder: Path, runs: list[Run], quick: bool) -> Results:
    """Every finished run among those declared."""
    found = {run.name: find(folder, run, quick)[0] for run in runs}
    return Results({name: record for name, record in found.items() if record})


def provenance(context: Context) -> dict[str, Any]:
    """What made a result, without anything that changes between two equal runs."""
    on_gpu = context.device.type == "cuda"
    return {
        "flatgauge": flatgauge.__version__,
        "torch": torch.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(context.device) if on_gpu else "cpu",
        "commit": _commit(),
        "quick": context.quick,
    }


def _data(context: Context, run: Run) -> dict[str, str]:
    return {"data": digest(context, run.data)} if "data" in run.needs else {}


def _is_whole(record: Any) -> bool:
    if not isinstance(record, dict) or not all(part in record for part in PARTS):
        return False
    return isinstance(record["provenance"], dict) and "quick" in record["provenance"]


def _commit() -> str:
    """The commit, and whether the code has changed since; "unknown" outside of git."""
    changed = _git("status", "--porcelain", "--", *CODE)
    commit = _git("rev-parse", "--short", "HEAD")
    if commit is None:
        return "unknown"
    return f"{commit} with changes" if changed else commit


def _git(*arguments: str) -> str | None:
    try:
        said = subprocess.run(
            ["git", *arguments],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return said.stdout.strip()


def _finite(data: Any) -> Any:
    if isinstance(data, dict):
        return {key: _finite(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_finite(value) for value in data]
    if isinstance(data, float) and not math.isfinite(data):
        return None
    return data
