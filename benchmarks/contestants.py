"""Building every contestant that can be built, and saying why the others cannot."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

MESSAGE = 200


def build_all(
    builders: Mapping[str, Callable[[], Any]], attempt: Callable[[Any], object]
) -> tuple[dict[str, Any], dict[str, str]]:
    """What was built and survived one attempt, and the failures in words.

    A builder returns None where its package is missing, which is no failure.
    """
    built: dict[str, Any] = {}
    failures: dict[str, str] = {}
    for name, build in builders.items():
        try:
            one = build()
            if one is not None:
                attempt(one)
                built[name] = one
        except Exception as error:
            failures[name] = in_words(error)
    return built, failures


def answers(
    builders: Mapping[str, Callable[[], Any]], ask: Callable[[Any], Any]
) -> dict[str, Any]:
    """What each contestant that can be built and does not fail has to say."""
    found: dict[str, Any] = {}

    def attempt(name: str, one: Any) -> None:
        found[name] = ask(one)

    for name, build in builders.items():
        build_all({name: build}, partial(attempt, name))
    return found


def in_words(error: Exception) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())[:MESSAGE]
