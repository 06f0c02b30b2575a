"""Numbers and tables for terminals and notebooks."""

from __future__ import annotations

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
