"""Numbers, factors, names and lists as people read them."""

from __future__ import annotations

import math
from typing import Any

SUPERSCRIPT = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def number(value: Any, digits: int = 4) -> str:
    """A number for people, with a power of ten where it is very large or small.

    >>> number(1234.5678), number(0.000012345), number(None)
    ('1,235', '1.234 × 10⁻⁵', '–')
    """
    if value is None:
        return "–"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    if isinstance(value, int) and abs(value) < 10**15:
        return f"{value:,}"
    exponent = math.floor(math.log10(abs(value)))
    if -4 <= exponent < 6:
        decimals = max(digits - 1 - exponent, 0)
        return f"{value:,.{decimals}f}".replace("-", "−")
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    mantissa = mantissa.replace("-", "−")
    return f"{mantissa} × 10{str(int(power)).translate(SUPERSCRIPT)}"


def factor(value: float) -> str:
    """A ratio for people; what differs from 1 by rounding alone is 1.

    >>> factor(13.72), factor(1 + 1e-9), factor(2.5e7)
    ('×13.7', '×1', '×2.50 × 10⁷')
    """
    if abs(value - 1) < 5e-4:
        return "×1"
    return f"×{number(float(value), 3)}"


def shorten(text: Any, length: int = 60) -> str:
    """One line of at most so many characters, cut in its middle.

    >>> shorten("layers.0.attention.output.weight", 15)
    'layers…weight'
    """
    line = " ".join(str(text).split())
    if len(line) <= length:
        return line
    half = (length - 1) // 2
    return f"{line[:half]}…{line[-half:]}".replace(".…", "…").replace("….", "…")


def plot_text(text: Any, length: int = 60) -> str:
    """One line of letters that a figure can show, whatever was given.

    >>> plot_text(f"a{chr(0)} <b>name</b>")
    'a <b>name</b>'
    """
    return "".join(one for one in shorten(text, length) if one.isprintable())


def listed(items: list[str], limit: int = 4) -> str:
    """A list in a sentence.

    >>> listed(["a", "b", "c"]), listed(["a"])
    ('a, b and c', 'a')
    """
    if len(items) > limit:
        return f"{', '.join(items[:limit])} and {len(items) - limit} more"
    if len(items) < 2:
        return "".join(items)
    return f"{', '.join(items[:-1])} and {items[-1]}"


def finite(value: Any) -> bool:
    """Whether a value is a number that can be drawn."""
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )
