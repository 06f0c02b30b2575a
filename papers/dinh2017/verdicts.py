"""What is said of a claim: one sentence, and a verdict."""

from __future__ import annotations

AGREES, DIFFERS = "agrees", "differs"
Finding = tuple[str, str]


def verdict(holds: bool, words: str = AGREES) -> str:
    return words if holds else DIFFERS
