"""Columns of a design: a value and a target for each network, and its settings."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatgauge.errors import OptionError
from flatgauge.measurements import Measurement

NO_VALUE, NO_TARGET = "no value", "no target"

Array = np.ndarray
Column = Sequence[Any] | np.ndarray


@dataclass(frozen=True)
class Design:
    """The networks that have both a value and a target.

    Attributes:
        kept: their places among all networks.
        count: how many networks there are, with those that are left out.
        values: one for each of `kept`.
        targets: likewise.
        settings: the hyperparameters by name, each setting as a number from 0 on.
        labels: the environment of each, or None.
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
        OptionError: for columns of other lengths.
    """
    every = {"targets": targets, **(hyperparameters or {})}
    every |= {} if environments is None else {"environments": environments}
    for name, column in every.items():
        if isinstance(column, str) or len(column) != len(values):
            raise OptionError(
                f"the column '{name}' has {len(column)} entries, but there are "
                f"{len(values)} values: give one for each network."
            )
    found = [
        (_value(value), _target(target))
        for value, target in zip(values, targets, strict=True)
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
    if environments is not None:
        labels, names = _numbered(_chosen(environments, kept))
    return Design(
        kept=places,
        count=len(found),
        values=np.array([found[place][0] for place in kept], dtype=float),
        targets=np.array([found[place][1] for place in kept], dtype=float),
        settings={
            str(name): _numbered(_chosen(column, kept))[0]
            for name, column in (hyperparameters or {}).items()
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


def _chosen(column: Column, kept: list[int]) -> list[Any]:
    entries = list(column)
    return [entries[place] for place in kept]


def _numbered(column: Sequence[Hashable]) -> tuple[Array, list[str]]:
    """Each different entry's number, in the order in which they come."""
    known: dict[Hashable, int] = {}
    numbers = [known.setdefault(entry, len(known)) for entry in column]
    return np.array(numbers, dtype=int), [str(entry) for entry in known]
