"""Numbers and tables for terminals and notebooks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape


def format_value(value: float | None, uncertainty: float | None = None) -> str:
    """A number for people: six digits, with its uncertainty.

    >>> format_value(3.14159265, 0.002)
    '3.14159 ± 0.002'
    """
    if value is None:
        return "-"
    shown = f"{value:.6g}"
    return shown if uncertainty is None else f"{shown} ± {uncertainty:.1g}"


def rounded(value: float, uncertainty: float | None = None) -> str:
    """A number for a paper: to two digits of its uncertainty, to four if it is exact.

    >>> rounded(3.14159265, 0.0021), rounded(1234.5678), rounded(2.0e-7, 3e-9)
    ('3.1416 ± 0.0021', '1235', '2.000e-07 ± 3.0e-09')
    """
    if not uncertainty:
        return f"{value:#.4g}".rstrip(".")
    last = math.floor(math.log10(uncertainty)) - 1
    if -6 <= last <= 0 and abs(value) < 1e6:
        return f"{value:.{-last}f} ± {uncertainty:.{-last}f}"
    first = math.floor(math.log10(abs(value))) if value else last
    return f"{value:.{max(first - last, 1)}e} ± {uncertainty:.1e}"


def checkpoints_in_words(steps: Sequence[int | None], of: str = "") -> str:
    """How many checkpoints there are, and from which step to which.

    >>> checkpoints_in_words([10, 20, 1000], " of one run"), checkpoints_in_words([5])
    ('3 checkpoints of one run, steps 10 to 1,000', '1 checkpoint, step 5')
    """
    known = [step for step in steps if step is not None]
    if len(steps) == 1:
        return f"1 checkpoint{of}" + "".join(f", step {step:,}" for step in known)
    span = f", steps {min(known):,} to {max(known):,}" if known else ""
    return f"{len(steps)} checkpoints{of}{span}"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """Columns of text, aligned."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True))
        for row in [head, *rows]
    ]
    rule = "  ".join("-" * width for width in widths)
    return "\n".join(line.rstrip() for line in [lines[0], rule, *lines[1:]])


def html_table(
    head: Sequence[str], rows: Sequence[Sequence[str]], note: str = ""
) -> str:
    """An HTML table with everything escaped, and a note below it.

    >>> html_table(["a"], [["<b>"]])
    '<table><thead><tr><th>a</th></tr></thead><tbody><tr><td>&lt;b&gt;</td></tr></tbody></table>'
    """
    top = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>"
        for row in rows
    )
    below = f"<p>{escape(note)}</p>" if note else ""
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>{below}"
