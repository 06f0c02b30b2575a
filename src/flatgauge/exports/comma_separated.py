"""Rows as comma-separated values."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

from flatgauge.exports.tabular import Tabular
from flatgauge.files import write_text

SUFFIXES = (".csv",)


def write(result: Tabular, path: Path) -> list[Path]:
    """One line for each row; what is a list or a mapping is written as JSON."""
    rows = result.rows()
    text = io.StringIO(newline="")
    columns = list(dict.fromkeys(key for row in rows for key in row))
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    writer.writeheader()
    writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)
    write_text(path, text.getvalue())
    return [path]


def _cell(value: Any) -> Any:
    if isinstance(value, dict | list | tuple):
        return json.dumps(value, ensure_ascii=False)
    return value
