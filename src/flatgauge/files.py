"""Files that are whole or not there."""

from __future__ import annotations

import os
from pathlib import Path


def write_text(path: str | Path, text: str) -> None:
    """Write beside, then rename, so that no half-written file is ever seen."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """The same for bytes."""
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
