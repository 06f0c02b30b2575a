"""Curves of the rows that tell of growth, and their slopes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.alone import DIAGONAL


@dataclass(frozen=True)
class Curve:
    """A quantity against an axis, in the order of the axis."""

    network: str
    name: str
    x: list[float]
    y: list[float]

    @property
    def label(self) -> str:
        return f"{self.network}: {self.name}"

    @property
    def slope(self) -> float:
        """Of the straight line through the logarithms."""
        return float(np.polyfit(np.log(self.x), np.log(self.y), 1)[0])

    @property
    def rise(self) -> float:
        """The last value in units of the first."""
        return self.y[-1] / self.y[0]


def curves(found: dict[str, Any], axis: str, x: str, y: str) -> list[Curve]:
    """One for each network and contestant with two points or more."""
    grouped: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in found.get("growth", []):
        if row.get("axis") == axis and row.get(y, 0) > 0:
            key = row["network"], row["contestant"]
            grouped.setdefault(key, []).append((row[x], row[y]))
    return [
        Curve(*key, *map(list, zip(*sorted(points), strict=True)))
        for key, points in grouped.items()
        if len(points) > 1
    ]


def time_with_samples(found: dict[str, Any]) -> list[Curve]:
    return curves(found, "samples", "value", "seconds")


def memory_with_samples(found: dict[str, Any]) -> list[Curve]:
    return curves(found, "samples", "value", "peak")


def time_with_parameters(found: dict[str, Any]) -> list[Curve]:
    return curves(found, "width", "parameters", "seconds")


def diagonal_with_classes(found: dict[str, Any]) -> list[Curve]:
    rows = [row for row in found.get("growth", []) if row.get("axis") == "classes"]
    rows.sort(key=lambda row: row["value"])
    if len(rows) < 2:
        return []
    classes = [float(row["value"]) for row in rows]
    names = {"exact": DIAGONAL, "probes": f"{rows[0]['probes']} square-root probes"}
    return [
        Curve("LeNet", name, classes, [row["gradients"][key] for row in rows])
        for key, name in names.items()
    ]


def switch(found: dict[str, Any]) -> tuple[int, int] | None:
    """The last number of classes with the exact diagonal by default, and the next."""
    rows = [row for row in found.get("growth", []) if row.get("axis") == "classes"]
    exact = [row["value"] for row in rows if row["default"] == "exact"]
    other = [row["value"] for row in rows if row["default"] != "exact"]
    return (max(exact), min(other)) if exact and other else None
