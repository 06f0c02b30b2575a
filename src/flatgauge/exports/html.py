"""The page."""

from __future__ import annotations

from pathlib import Path

from flatgauge.errors import OptionError
from flatgauge.exports.tabular import Tabular
from flatgauge.files import write_text

SUFFIXES = (".html", ".htm")


def write(result: Tabular, path: Path) -> list[Path]:
    """One file with figures and tables that needs nothing else."""
    from flatgauge.report.page import render

    plain = result.whole()
    if plain is None:
        raise OptionError(
            f"a {type(result).__name__} has no page of its own: use .svg, .csv or .tex."
        )
    write_text(path, render(plain))
    return [path]
