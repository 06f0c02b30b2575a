"""Rows as they come: one JSON line a network, the last one of a name counts."""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path

import torch

from zoo.checks import Row

FOLDER = Path(__file__).parent
ROOT = FOLDER.parents[1]


@cache
def source() -> str:
    """A fingerprint of the package, of the zoo, and of torch."""
    digest = hashlib.sha256(torch.__version__.encode())
    for folder in (ROOT / "src", FOLDER):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


class Store:
    """A file of rows."""

    PATH = FOLDER / "results.jsonl"

    def __init__(self, path: Path = PATH):
        self.path = path

    def add(self, row: Row) -> None:
        """Put a row of today's source in the place of an earlier one, or at the end."""
        self.put({**row, "source": source()})

    def put(self, row: Row) -> None:
        """The same, whatever its source."""
        rows = self.rows()
        rows[row["name"]] = row
        lines = [json.dumps(one, ensure_ascii=False) for one in rows.values()]
        fresh = self.path.with_suffix(".partial")
        fresh.write_text("\n".join(lines) + "\n")
        fresh.replace(self.path)

    def rows(self) -> dict[str, Row]:
        """Rows by name."""
        if not self.path.exists():
            return {}
        found = [json.loads(line) for line in self.path.read_text().splitlines()]
        return {row["name"]: row for row in found}
