"""The shape of the source: every file says what it is."""

from __future__ import annotations

from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "flatgauge"
FILES = sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_every_file_says_what_it_is(path):
    assert path.read_text().startswith('"""')
