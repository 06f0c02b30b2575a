"""Columns of a design: a value and a target for each network, and its settings."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from flatgauge.errors import OptionError
from flatgauge.measurements import Measurement

NO_VALUE, NO_TARGET = "no value", "no target"
MISSING = (None, "")
"""Labels of networks that are in no environment."""

Array = np.ndarray
Column = Sequence[Any] | np.ndarray | Tensor


@dataclass(frozen=True)
class Design:
    """The networks that have both a value and a target.

    Attributes:
        kept: their places among all networks.
        count: how many networks there are, with those that are left out.
        values: one for each of `kept`.
        targets: likewise.
        settings: the hyperparameters by name, each setting as a number from 0 on.
        labels: the environment of each, -1 where it has none, or None.
        names: how environments are called, by their number.
        left_out: the places of the others, by the reason.
    """

    kept: Array
    count: int
    values: Array
    targets: Array
    settings: dict[str, Array]
    labels: Array | None
    names: list[str]
    left_out: dict[str, list[int]]


def design(
    values: Column,
    targets: Column,
    hyperparameters: Mapping[str, Column] | None,
    environments: Column | None,
) -> Design:
    """Check the columns, and leave networks without a value or a target out.

    Raises:
        OptionError: for columns of other lengths, or of something else.
    """
    if not isinstance(hyperparameters, Mapping | None):
        raise OptionError(
            f"hyperparameters= is a {type(hyperparameters).__name__}: give a mapping from "
            "names to columns."
        )
    given = _entries("values", values)
    wanted = _entries("targets", targets)
    known = {
        str(name): _settings(str(name), column)
        for name, column in (hyperparameters or {}).items()
    }
    placed = None
    if environments is not None:
        placed = _settings("environments", environments)
    every = {"targets": wanted, **known}
    every |= {} if placed is None else {"environments": placed}
    for name, column in every.items():
        if len(column) != len(given):
            raise OptionError(
                f"the column '{name}' has {len(column)} entries, but there are "
                f"{len(given)} values: give one for each network."
            )
    found = [
        (_value(value), _target(target))
        for value, target in zip(given, wanted, strict=True)
    ]
    kept: list[int] = []
    left_out: dict[str, list[int]] = {}
    for place, pair in enumerate(found):
        missing = next((one for one in pair if isinstance(one, str)), None)
        if missing is None:
            kept.append(place)
        else:
            left_out.setdefault(missing, []).append(place)
    places = np.array(kept, dtype=int)
    labels, names = None, []
    if placed is not None:
        labels, names = _numbered([placed[place] for place in kept], MISSING)
    return Design(
        kept=places,
        count=len(found),
        values=np.array([found[place][0] for place in kept], dtype=float),
        targets=np.array([found[place][1] for place in kept], dtype=float),
        settings={
            name: _numbered([column[place] for place in kept])[0]
            for name, column in known.items()
        },
        labels=labels,
        names=names,
        left_out=left_out,
    )


def combined(columns: Iterable[Array], count: int) -> Array:
    """A number for each combination of settings that occurs; 0 for all without any."""
    stacked = np.array([np.zeros(count, dtype=int), *columns])
    _, found = np.unique(stacked, axis=1, return_inverse=True)
    return found.reshape(-1)


def signs(column: Array) -> Array:
    """The sign of every difference, column_i − column_j: -1, 0 or 1."""
    return np.sign(column[:, None] - column[None, :])


def _value(value: Any) -> float | str:
    """The number, or why there is none."""
    if isinstance(value, Measurement):
        if not value.status.trusted or value.value is None:
            return value.status.word
        return value.value
    return _finite(value, NO_VALUE)


def _target(target: Any) -> float | str:
    return _finite(target, NO_TARGET)


def _finite(value: Any, missing: str) -> float | str:
    if value is None or value == "":
        return missing
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise OptionError(
            f"'{value}' is no number: give numbers, and None or nan where there is none."
        ) from error
    return number if math.isfinite(number) else missing


def _entries(name: str, column: Column) -> list[Any]:
    """A column as a list: of arrays and tensors, and of what they consist of, plain data.

    Equal numbers of a tensor would count as different settings otherwise.
    """
    if isinstance(column, np.ndarray | Tensor):
        column = column.tolist()
    if isinstance(column, str) or not isinstance(column, Iterable):
        raise OptionError(
            f"the column '{name}' is a {type(column).__name__}: give a list with an entry "
            "for each network."
        )
    return [one.tolist() if hasattr(one, "tolist") else one for one in column]


def _settings(name: str, column: Column) -> list[Any]:
    """A column of settings; nan is None, which is a setting as others are."""
    entries = _entries(name, column)
    for entry in entries:
        if not isinstance(entry, str | int | float | tuple | None):
            raise OptionError(
                f"the column '{name}' has a {type(entry).__name__} as an entry: give a "
                "number or a word for each network."
            )
    return [None if one != one else one for one in entries]


def _numbered(
    column: Sequence[Hashable], missing: Sequence[Hashable] = ()
) -> tuple[Array, list[str]]:
    """Each different entry's number, in the order in which they come; -1 if missing."""
    known: dict[Hashable, int] = {}
    numbers = [
        -1 if entry in missing else known.setdefault(entry, len(known))
        for entry in column
    ]
    return np.array(numbers, dtype=int), [str(entry) for entry in known]
