"""Memory of the host: how much a process can still have, on every system.

Linux and Windows say what is available, and Linux also what the process's control groups
allow; elsewhere psutil is asked where it is installed. What only states its whole memory
is taken to have a quarter of it, and what states nothing `UNSTATED`: too low a number
costs time, too high a one the process.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import sys
from pathlib import Path

UNSTATED = 2 * 2**30
PROC = Path("/proc")
GROUPS = Path("/sys/fs/cgroup")


def available_memory() -> int:
    """Bytes that can be had without swapping and within the limits of the process."""
    readers = (_linux, _windows, _psutil, _quarter)
    found = (read() for read in readers)
    system = next((size for size in found if size is not None), UNSTATED)
    return max(0, min([system, *_group_rooms()]))


def _linux() -> int | None:
    # Not MemFree, which leaves out what is only cached.
    found = _table(PROC / "meminfo").get("MemAvailable:")
    return None if found is None else found * 1024


class _MemoryStatus(ctypes.Structure):
    """Windows' MEMORYSTATUSEX."""

    _fields_ = (
        ("length", ctypes.c_uint32),
        ("load", ctypes.c_uint32),
        ("total", ctypes.c_uint64),
        ("available", ctypes.c_uint64),
        ("others", ctypes.c_uint64 * 5),
    )


def _windows() -> int | None:
    if sys.platform != "win32":
        return None
    status = _MemoryStatus(length=ctypes.sizeof(_MemoryStatus))
    known = ctypes.windll.kernel32.GlobalMemoryStatusEx(ctypes.byref(status))
    return status.available if known else None


def _psutil() -> int | None:
    try:
        return importlib.import_module("psutil").virtual_memory().available
    except ImportError:
        return None


def _quarter() -> int | None:
    try:
        whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None
    return whole // 4 if whole > 0 else None


def _group_rooms() -> list[int]:
    """What each control group over the process leaves, of version 1 or 2."""
    rooms = []
    for line in _lines(PROC / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if not controllers:
            base, limit, usage = GROUPS, "memory.max", "memory.current"
        elif "memory" in controllers.split(","):
            base = GROUPS / "memory"
            limit, usage = "memory.limit_in_bytes", "memory.usage_in_bytes"
        else:
            continue
        own = base / path.strip("/")
        # In a container the path may be the host's, and the group's own files at the base.
        while own != base:
            rooms += _room(own, limit, usage)
            own = own.parent
        rooms += _room(base, limit, usage)
    return rooms


def _room(group: Path, limit: str, usage: str) -> list[int]:
    most, used = (_number(group / name) for name in (limit, usage))
    if most is None or used is None:
        return []
    stated = _table(group / "memory.stat")
    # Files that were read and not used since are given up before memory runs out.
    cached = stated.get("total_inactive_file", stated.get("inactive_file", 0))
    return [most - used + cached]


def _number(path: Path) -> int | None:
    lines = _lines(path)
    return int(lines[0]) if lines and lines[0].isdigit() else None


def _table(path: Path) -> dict[str, int]:
    rows = [line.split() for line in _lines(path)]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdigit()}


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
