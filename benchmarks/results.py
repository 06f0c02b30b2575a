"""The file of results, which several runs fill together."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "results"
SCALE = FOLDER / "scale"
# What tells the rows of one part from each other.
IDENTITY = ("network", "precision", "batch", "axis", "value", "contestant")


class Results:
    """Rows by part; a new row takes the place of the one with the same identity."""

    def __init__(self, path: Path):
        self.path = path
        self.found: dict[str, Any] = {}
        if path.exists():
            self.found = json.loads(path.read_text())

    def set_machine(
        self, machine: dict[str, Any], decisive: tuple[str, ...] | None = None
    ) -> None:
        """Say what makes the rows; rows of another machine are not mixed with them.

        Args:
            machine: its parts and versions.
            decisive: what must be as before; everything if None.
        """
        before = self.found.setdefault("machine", machine)
        if any(before.get(key) != machine[key] for key in decisive or machine):
            raise SystemExit(
                f"benchmarks: '{self.path}' comes from another machine or other versions: "
                "remove it, or name another file with --out."
            )
        self.found["machine"] = machine
        self._write()

    def add(self, part: str, row: dict[str, Any]) -> None:
        rows = self.found.setdefault(part, [])
        same = [i for i, one in enumerate(rows) if _identity(one) == _identity(row)]
        if same:
            rows[same[0]] = row
        else:
            rows.append(row)
        self._write()

    def rows(self, part: str) -> list[dict[str, Any]]:
        """The rows of one part so far."""
        return self.found.get(part, [])

    def clear(self, part: str) -> None:
        """Forget the rows of a part whose new ones do not go with the old."""
        self.found.pop(part, None)
        self._write()

    def set_failure(self, label: str, message: str | None) -> None:
        """Note that a job failed, or no longer does."""
        failures = self.found.setdefault("failures", {})
        failures.pop(label, None)
        if message is not None:
            failures[label] = message
        self._write()

    def _write(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # Put in place whole: a run that is cut off must not lose what it stored.
        partial = self.path.with_name(f"{self.path.name}.partial")
        partial.write_text(json.dumps(self.found, indent=1) + "\n")
        os.replace(partial, self.path)


def _identity(row: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(row.get(key) for key in IDENTITY)
