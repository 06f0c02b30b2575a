"""A table for a paper, with the sentence below it."""

from __future__ import annotations

import re
from pathlib import Path

from flatgauge.errors import OptionError
from flatgauge.exports.tabular import NOTHING, Tabular
from flatgauge.files import write_text

SUFFIXES = (".tex",)
TABLE = True
SPECIAL = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "×": r"$\times$",
    "≥": r"$\ge$",
    "−": "$-$",
    "λ": r"$\lambda$",
    "ε": r"$\varepsilon$",
    "“": "``",
    "”": "''",
    "…": r"\ldots{}",
}
POWER = re.compile(r"(\d)e([+-]\d+)\b")


def write(result: Tabular, path: Path) -> list[Path]:
    """A `table` that needs the package booktabs."""
    write_text(path, text(result))
    return [path]


def text(result: Tabular) -> str:
    """The same, not in a file.

    Raises:
        OptionError: if there is nothing to write.
    """
    head, cells = result.paper_table()
    if not cells:
        raise OptionError(NOTHING)
    columns = "l" + "r" * (len(head) - 1)
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_escaped(result.sentence())}}}",
        rf"\begin{{tabular}}{{{columns}}}",
        r"\toprule",
        _line(head),
        r"\midrule",
        *map(_line, cells),
        r"\bottomrule",
        r"\end{tabular}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _line(cells: tuple[str, ...]) -> str:
    return " & ".join(map(_escaped, cells)) + r" \\"


def _escaped(text: str) -> str:
    r"""Text as LaTeX shows it, with powers of ten written out.

    >>> _escaped("1.5e-06 ± 1e-08 & a_b")
    '1.5$\\times 10^{-6}$ $\\pm$ 1$\\times 10^{-8}$ \\& a\\_b'
    """
    plain = "".join(SPECIAL.get(one, one) for one in " ".join(text.split()))
    return POWER.sub(lambda found: rf"{found[1]}$\times 10^{{{int(found[2])}}}$", plain)
