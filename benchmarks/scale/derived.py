"""What the rows say together: overheads, errors, and how far PyHessian comes."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.scale.case import Found

RIGHT = 1e-3
# The rule and the tolerance of PyHessian's default call.
THEIR_TOLERANCE = 1e-3
TRACE_TARGET = 0.02


class Measured:
    """The rows of one network: those that ended, and what stopped the others."""

    def __init__(self, rows: Sequence[Found]):
        self.rows = rows
        self.network: str = rows[0]["network"]

    def row(self, name: str, precision: str | None = None) -> Found | None:
        """The row of that name, in TF32 where there is one."""
        found = [
            one
            for one in self.rows
            if one["contestant"] == name
            and precision in (None, one["precision"])
            and "error" not in one
            and not one.get("unfinished")
        ]
        return max(found, key=lambda one: one["precision"] == "tf32", default=None)

    def number(self, name: str, precision: str | None = None) -> Found | None:
        """The same, where it holds a number."""
        found = self.row(name, precision)
        return None if found is None or found.get("result") is None else found

    def unfinished(self) -> dict[str, str]:
        """Why there is no such row, by name."""
        failed = {
            one["contestant"]: one.get("error") or "cut off before its end"
            for one in self.rows
            if "error" in one or one.get("unfinished")
        }
        without = {
            one["contestant"]: one["message"]
            for one in self.rows
            if "message" in one and one.get("result") is None
        }
        return failed | without

    def seconds(self, name: str) -> float | None:
        found = self.row(name)
        return None if found is None else found["seconds"]


def by_network(rows: Sequence[Found]) -> dict[str, Measured]:
    grouped: dict[str, list[Found]] = {}
    for one in rows:
        grouped.setdefault(one["network"], []).append(one)
    return {name: Measured(some) for name, some in grouped.items()}


def overhead(found: Measured, name: str) -> float | None:
    """The time of a call beyond its products, in units of theirs."""
    call, product = found.number(name), found.seconds("product")
    if call is None or product is None or not call["products"]:
        return None
    return call["seconds"] / (call["products"] * product) - 1


def solver_error(found: Measured) -> float | None:
    """Of the largest eigenvalue, against the long run at the same precision."""
    call, long = found.number("eigenvalue"), found.number("long run")
    if call is None or long is None:
        return None
    return abs(call["result"] / long["result"] - 1)


def precision_error(found: Measured) -> float | None:
    """Of TF32 against IEEE float32, in the largest eigenvalue."""
    coarse = found.number("long run", "tf32") or found.number("eigenvalue", "tf32")
    fine = found.number("eigenvalue", "ieee")
    if coarse is None or fine is None:
        return None
    return abs(coarse["result"] / fine["result"] - 1)


@dataclass(frozen=True)
class PowerIteration:
    """Where PyHessian's run is stopped: after which product, when, with what value."""

    products: int
    seconds: float
    value: float


def their_default(found: Measured) -> PowerIteration | None:
    """Its default call: it returns the last value but one when two nearly agree."""
    row = found.row("PyHessian eigenvalue")
    if row is None:
        return None
    values, seconds = row["values"], row["seconds"]
    for k in range(1, len(values)):
        change = abs(values[k - 1] - values[k]) / (abs(values[k - 1]) + 1e-6)
        if change < THEIR_TOLERANCE:
            return PowerIteration(k + 1, seconds[k], values[k - 1])
    return PowerIteration(len(values), seconds[-1], values[-1])


def dominant(found: Measured) -> float | None:
    """The eigenvalue of largest magnitude, which power iteration goes to."""
    long = found.number("long run")
    if long is None:
        return None
    return max(long["result"], long["details"].get("smallest", 0.0), key=abs)


def their_error(found: Measured) -> float | None:
    """Of the default call, against the eigenvalue that power iteration goes to."""
    call, truth = their_default(found), dominant(found)
    return None if call is None or truth is None else abs(call.value / truth - 1)


def their_right(found: Measured) -> PowerIteration | None:
    """Its run up to the first product whose value is right; None if there is none."""
    row, truth = found.row("PyHessian eigenvalue"), dominant(found)
    if row is None or truth is None:
        return None
    for k, (value, seconds) in enumerate(
        zip(row["values"], row["seconds"], strict=True)
    ):
        if abs(value / truth - 1) <= RIGHT:
            return PowerIteration(k + 1, seconds, value)
    return None


def never_right(found: Measured) -> int | None:
    """How many products PyHessian took without coming near; None if it did, or did not run."""
    row = found.row("PyHessian eigenvalue")
    if row is None or dominant(found) is None or their_right(found) is not None:
        return None
    return len(row["values"])


@dataclass(frozen=True)
class Plain:
    """Plain probes: their mean, its standard error, and the probes that 2 % would take."""

    mean: float
    error: float
    needed: int


def plain(found: Measured) -> Plain | None:
    row = found.row("plain probes")
    if row is None:
        return None
    values = row["values"]
    mean, variance = statistics.mean(values), statistics.variance(values)
    needed = math.ceil(variance / (TRACE_TARGET * mean) ** 2)
    return Plain(mean, math.sqrt(variance / len(values)), max(needed, 1))


def total(call: Mapping[str, Any]) -> float:
    """The seconds from the model and the batches to the number."""
    return call["set-up"] + call["seconds"]


def unlimited(memory: Measured, own: Measured | None, name: str) -> Found | None:
    """The row without a limit: from the same call, or from the network's own part."""
    return memory.row(name) or (None if own is None else own.row(name))
