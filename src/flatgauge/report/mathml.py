"""Formulas as they are written in the registry, typeset as MathML.

The notation: `_` and `^` begin a sub- or superscript, of one token or of {...}; ² and ₂
are scripts, too; √ takes what follows it; words of two letters and more stand upright.
"""

from __future__ import annotations

import re
from html import escape

SUPER = str.maketrans("⁻⁰¹²³⁴⁵⁶⁷⁸⁹ᵀ", "−0123456789T")
SUB = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
FUNCTIONS = {"max", "min", "inf", "ln", "diag", "Tr", "vol", "KL"}
TOKEN = re.compile(
    r"(?P<space>\s+)"
    r"|(?P<word>[A-Za-z][A-Za-z-]*[A-Za-z]|\ba\b(?= [a-z]{2}))"
    r"|(?P<sign>[-+−/=≤≥<~,;:|‖⟨⟩∇∂Σ·∞])"
    r"|(?P<letter>[A-Za-zα-ωΑ-Ωℓ])"
    r"|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<super>[⁻⁰¹²³⁴⁵⁶⁷⁸⁹ᵀ]+)"
    r"|(?P<sub>[₀₁₂₃₄₅₆₇₈₉]+)"
    r"|(?P<prime>')"
    r"|(?P<script>[_^])"
    r"|(?P<root>√)"
    r"|(?P<open>[({\[])|(?P<close>[)}\]])"
)
LONGEST = 300
CLOSING = {"(": ")", "{": "}", "[": "]"}


def mathml(formula: str) -> str | None:
    """The formula as a `math` element; None where it is not in the notation.

    >>> mathml("√W_ij²")
    '<math><msqrt><msubsup><mi>W</mi><mi>ij</mi><mn>2</mn></msubsup></msqrt></math>'
    """
    if not formula or len(formula) > LONGEST:
        return None
    tokens: list[tuple[str, str]] = []
    place = 0
    while place < len(formula):
        found = TOKEN.match(formula, place)
        if found is None:
            return None
        tokens.append((str(found.lastgroup), found[0]))
        place = found.end()
    reader = _Reader(tokens)
    try:
        body = reader.row("")
    except IndexError:
        return None
    return None if reader.left else f"<math>{body}</math>"


class _Reader:
    """Reads tokens from the left; an IndexError says that one is missing."""

    def __init__(self, tokens: list[tuple[str, str]]):
        self.left = tokens

    def row(self, until: str) -> str:
        """Atoms up to a closing bracket, which is taken, or to the end."""
        parts = []
        while self.left:
            kind, text = self.left[0]
            if kind == "close":
                if text != until:
                    raise IndexError(text)
                self.left.pop(0)
                return "".join(parts)
            parts.append(self._spaced() if kind == "space" else self.scripted())
        if until:
            raise IndexError(until)
        return "".join(parts)

    def scripted(self) -> str:
        """One atom with what stands below and above it."""
        greek = self.left[0][0] == "letter" and not self.left[0][1].isascii()
        base, below, above = self.atom(), "", ""
        if greek and self.left and self.left[0][1] in FUNCTIONS:
            below = self.atom()
        while self.left:
            kind, text = self.left[0]
            if kind not in ("super", "sub", "prime", "script"):
                break
            self.left.pop(0)
            if kind == "prime":
                above += "<mo>′</mo>"
            elif kind == "super":
                above += _number(text.translate(SUPER))
            elif kind == "sub":
                below += _number(text.translate(SUB))
            elif text == "_":
                below += self.script()
            else:
                above += self.script()
        if below and above:
            return f"<msubsup>{base}{_one(below)}{_one(above)}</msubsup>"
        if below:
            return f"<msub>{base}{_one(below)}</msub>"
        return f"<msup>{base}{_one(above)}</msup>" if above else base

    def script(self) -> str:
        """One token, or a group in braces that are not shown."""
        if self.left[0] == ("open", "{"):
            self.left.pop(0)
            return f"<mrow>{self.row('}')}</mrow>"
        return self.atom()

    def atom(self) -> str:
        """A letter, a number, a word, a sign, a root or a group."""
        kind, text = self.left.pop(0)
        if kind == "root":
            return f"<msqrt>{self._argument()}</msqrt>"
        if kind == "open":
            inside = self.row(CLOSING[text])
            return f"<mrow><mo>{text}</mo>{inside}<mo>{CLOSING[text]}</mo></mrow>"
        if kind == "number":
            return _number(text)
        if kind == "letter" or (kind == "word" and text in FUNCTIONS):
            return f"<mi>{text}</mi>"
        if kind == "word":
            # Two letters are indices, such as ij; more of them are words.
            return (
                f"<mi>{text}</mi>" if len(text) == 2 and text != "of" else _text(text)
            )
        if kind == "sign":
            return f"<mo>{escape(text)}</mo>"
        raise IndexError(text)

    def _argument(self) -> str:
        """What a root is of: a function with its argument, or one atom."""
        named = self.left[0][1] in FUNCTIONS
        found = self.scripted()
        if named and self.left and self.left[0][0] == "open":
            found += self.scripted()
        return found

    def _spaced(self) -> str:
        self.left.pop(0)
        return '<mspace width="0.25em"></mspace>'


def _number(text: str) -> str:
    return f"<mn>{text}</mn>" if text[-1].isdigit() else f"<mi>{text}</mi>"


def _text(text: str) -> str:
    return f"<mtext>{text}</mtext>"


def _one(parts: str) -> str:
    """One element, as scripts must be."""
    several = len(re.findall(r"<(?=[a-z])", parts)) > 1
    return (
        f"<mrow>{parts}</mrow>" if several and not parts.startswith("<mrow>") else parts
    )
