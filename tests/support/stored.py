"""What two runs left behind, without the times, to be compared."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest


def without_times(folder: Path) -> dict[str, bytes]:
    """Every file below the folder, in bytes: stored ones and the page without times."""
    found = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.suffix == ".json":
            content = stored_without_times(content)
        if path.name == "README.md":
            content = page_without_times(content)
        found[str(path.relative_to(folder))] = content
    return found


def stored_without_times(content: bytes) -> bytes:
    """The bytes of a stored file without its part "times", which comes last."""
    record = json.loads(content)
    assert list(record) == sorted(record)
    assert list(record)[-1] == "times"
    kept, _ = content.split(b'\n "times": {')
    return kept


def page_without_times(content: bytes) -> bytes:
    """A page without the seconds in its last section."""
    above, heading, last = content.partition(b"## Run it again")
    assert heading
    last, sums = re.subn(rb"[\d.]+ s on ", b"", last)
    last, rows = re.subn(rb"^(\| \S+ \|) [\d.]+ \|", rb"\1", last, flags=re.MULTILINE)
    assert sums
    assert rows
    return above + heading + last


def assert_alike(found: Any, expected: Any) -> None:
    """The same, with numbers that agree up to what rounding makes of a small residual."""
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for name in expected:
            assert_alike(found[name], expected[name])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            assert_alike(one, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)
    else:
        assert found == expected
