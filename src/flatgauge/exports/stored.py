"""Everything, as it can be read back."""

from __future__ import annotations

import json
from pathlib import Path

from flatgauge.errors import OptionError
from flatgauge.exports.tabular import Tabular
from flatgauge.files import write_text

SUFFIXES = (".json",)


def write(result: Tabular, path: Path) -> list[Path]:
    """The report, which `Report.from_json` opens."""
    plain = result.whole()
    if plain is None:
        raise OptionError(f"a {type(result).__name__} is no report: use .csv or .tex.")
    write_text(path, json.dumps(plain, indent=1, allow_nan=False))
    return [path]
