"""The figures, each in a file of its own if there are several."""

from __future__ import annotations

import os
from pathlib import Path

from flatgauge.errors import OptionError
from flatgauge.exports.tabular import Tabular
from flatgauge.files import write_bytes, write_text

SUFFIXES = (".svg", ".png")


def write(result: Tabular, path: Path) -> list[Path]:
    """NAME.svg, or NAME-audit.svg and so on where there are several figures."""
    from flatgauge.report.drawing import png, svg
    from flatgauge.report.figures import figures

    drawn = figures({"extras": result.drawn_from()})
    if not drawn:
        raise OptionError(
            f"there is no figure to write as '{os.fspath(path)}': audits, comparisons, "
            "series, studies, spectra and landscapes have some."
        )
    places = {name: path.with_stem(f"{path.stem}-{name}") for name in drawn}
    if len(drawn) == 1:
        places = dict.fromkeys(drawn, path)
    for name, figure in drawn.items():
        if path.suffix.lower() == ".png":
            write_bytes(places[name], png(figure, name))
        else:
            write_text(places[name], svg(figure, name, themed=False))
    return list(places.values())
