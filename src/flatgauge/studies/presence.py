"""Whether a process is still there, also after kill -9: a lock ends with its process.

Unlike a process number a lock is never another process's later, and it needs no clock.
"""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def present(folder: Path) -> Iterator[str]:
    """The name of a file in the folder that this process keeps locked meanwhile."""
    folder.mkdir(parents=True, exist_ok=True)
    name = uuid.uuid4().hex
    path = folder / name
    try:
        with path.open("w") as opened:
            assert _locked(opened.fileno())
            opened.write(f"{socket.gethostname()} {os.getpid()}\n")
            opened.flush()
            yield name
    finally:
        path.unlink(missing_ok=True)


def is_present(folder: Path, name: str) -> bool:
    """Whether the process that has this name is alive; else its file is removed."""
    path = folder / name
    try:
        with path.open("r+") as opened:
            if not _locked(opened.fileno()):
                return True
    except FileNotFoundError:
        return False
    path.unlink(missing_ok=True)
    return False


if os.name == "nt":
    import msvcrt

    def _locked(file: int) -> bool:
        # Beyond the text, which others can read then.
        os.lseek(file, 1 << 20, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True
else:
    import fcntl

    def _locked(file: int) -> bool:
        """Lock the file, unless another process has."""
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
