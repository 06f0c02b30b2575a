"""Files that are whole or not there."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path


def write_text(path: str | Path, text: str) -> None:
    """Write beside, then rename, so that no half-written file is ever seen."""
    write_bytes(path, text.encode())


def write_bytes(path: str | Path, data: bytes) -> None:
    """The same for bytes."""
    target = Path(path)
    # A name that always fits where the file's own does.
    short = hashlib.sha256(target.name.encode(errors="replace")).hexdigest()[:16]
    beside = target.with_name(f".{short}.{os.getpid()}.part")
    try:
        beside.write_bytes(data)
        os.replace(beside, target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        # The file that was asked for, not the one beside it.
        raise type(error)(error.errno, error.strerror, str(target)) from None
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
