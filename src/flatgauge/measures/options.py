"""What an option may be: a type and a range, checked before anything is computed.

The annotation of a measure's keyword-only argument says it: `bool`, `int`, `float`,
`str`, a `Literal` of names, one of the ranges below, or any of these with `| None`.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from flatgauge.errors import OptionError


@dataclass(frozen=True)
class Range:
    """A condition on a number, and what to give instead where it does not hold."""

    advice: str
    holds: Callable[[float], bool]


def at_least(least: int) -> Range:
    """Whole numbers from `least` on."""
    return Range(f"a whole number from {least} on", lambda value: value >= least)


Positive = Annotated[float, Range("a positive number", lambda value: value > 0)]
Share = Annotated[float, Range("a number between 0 and 1", lambda v: 0 < v < 1)]
Count = Annotated[int, at_least(1)]
Surrogate = Literal["auto", "objective"]
DiagonalOf = Literal["hessian", "ggn"]
Scaling = Literal["layer", "node"]

ADVICE = {bool: "True or False", int: "a whole number", float: "a finite number"}


def option_types(function: Callable[..., Any]) -> dict[str, Any]:
    """The annotation of every option; where there is none, the type of its default."""
    found = {}
    space = inspect.unwrap(function).__globals__
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.KEYWORD_ONLY:
            found[parameter.name] = _type_of(parameter, space)
    return found


def checked(name: str, value: Any, kind: Any) -> Any:
    """The value as that type, or an OptionError that says what to give.

    >>> checked("tol", 1, float)
    1.0
    >>> checked("full", "maybe", bool)
    Traceback (most recent call last):
    flatgauge.errors.OptionError: full= is 'maybe': give True or False.
    """
    advice, fits = _reading(value, kind)
    if fits is None:
        raise OptionError(f"{name}= is {value!r}: {advice}.")
    return fits()


def _type_of(parameter: inspect.Parameter, space: dict[str, Any]) -> Any:
    kind = parameter.annotation
    if isinstance(kind, str):
        try:
            # What the function's own module means by it, as typing.get_type_hints does.
            kind = eval(kind, space)
        except (NameError, AttributeError, TypeError, SyntaxError):
            kind = parameter.empty
    if kind is parameter.empty or isinstance(kind, str):
        default = parameter.default
        kind = object if default in (None, parameter.empty) else type(default)
    return object if kind is Any else kind


def _reading(value: Any, kind: Any) -> tuple[str, Callable[[], Any] | None]:
    """What to give, and how to read this value (None if it does not fit)."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        parts = [_reading(value, one) for one in inner]
        advice = ", or ".join(advice.removeprefix("give ") for advice, _ in parts)
        return f"give {advice}", next((fits for _, fits in parts if fits), None)
    if origin is Annotated:
        advice, fits = _reading(value, inner[0])
        for limit in inner[1:]:
            if isinstance(limit, Range):
                advice = f"give {limit.advice}"
                fits = fits if fits and limit.holds(value) else None
        return advice, fits
    if origin is Literal:
        known = " or ".join(repr(one) for one in inner)
        return f"use {known}", (lambda: value) if value in inner else None
    if kind is NoneType:
        return "give None", (lambda: None) if value is None else None
    if kind in ADVICE:
        return f"give {ADVICE[kind]}", (lambda: kind(value)) if _is(
            value, kind
        ) else None
    fits = not inspect.isclass(kind) or isinstance(value, kind)
    wanted = "a name" if kind is str else f"a {getattr(kind, '__name__', kind)}"
    return f"give {wanted}", (lambda: value) if fits else None


def _is(value: Any, kind: type) -> bool:
    """Whether a value is a bool, a whole number or a finite number; True is no number."""
    if kind is bool or isinstance(value, bool):
        return kind is bool and isinstance(value, bool)
    if kind is int:
        return isinstance(value, Integral)
    return isinstance(value, Real) and math.isfinite(value)
