"""Rows as comma-separated values."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from flatgauge.errors import OptionError
from flatgauge.exports.tabular import NOTHING, Tabular
from flatgauge.files import write_text

SUFFIXES = (".csv",)
TABLE = True


def write(result: Tabular, path: Path) -> list[Path]:
    """One line for each row; what is a list or a mapping is written as JSON."""
    write_text(path, text(result))
    return [path]


def text(result: Tabular) -> str:
    """The same, not in a file.

    Raises:
        OptionError: if there is nothing to write.
    """
    rows = result.rows()
    if not rows:
        raise OptionError(NOTHING)
    made = io.StringIO(newline="")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(made, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    return made.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    return value
