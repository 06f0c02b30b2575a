"""Contributions by layer, as bars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flatgauge.report.formatting import finite, number
from flatgauge.report.sections import catalogue, subjects
from flatgauge.results import Measurement, Plain

BARS = 12
"""The most layers that are drawn for one measure."""


def layer_bars(report: Plain) -> list[dict[str, Any]]:
    """For each measure that has them, the contributions by layer of every subject."""
    names = subjects(report)
    charts = []
    for request, entry in catalogue(report).items():
        series = {
            name: numbers
            for name, one in names.items()
            if (numbers := _layers(one.measurements.get(request)))
        }
        if not series:
            continue
        size = {
            layer: max(abs(numbers.get(layer, 0.0)) for numbers in series.values())
            for layer in next(iter(series.values()))
        }
        largest = sorted(size, key=lambda layer: -size[layer])[:BARS]
        top = size[largest[0]] or 1.0
        rows = [
            {
                "layer": layer,
                "bars": [
                    {
                        "name": name,
                        "value": number(numbers.get(layer, 0.0), 3),
                        "share": f"{100 * abs(numbers.get(layer, 0.0)) / top:.1f}",
                        "negative": numbers.get(layer, 0.0) < 0,
                    }
                    for name, numbers in series.items()
                ],
            }
            for layer in size
            if layer in largest
        ]
        charts.append(
            {
                **entry,
                "unit": _unit(next(iter(names.values())).measurements[request]),
                "rows": rows,
                "rest": len(size) - len(rows),
                "names": list(series),
            }
        )
    return charts


def _layers(found: Measurement | None) -> dict[str, float]:
    """Contributions by layer: plain numbers only."""
    layers = None if found is None else found.details.get("layers")
    if not isinstance(layers, Mapping):
        return {}
    numbers: dict[str, float] = {}
    for name, value in layers.items():
        if isinstance(value, Mapping):
            value = value.get("spectral")
        if finite(value):
            numbers[str(name)] = float(value)  # type: ignore[arg-type]
    return numbers


def _unit(found: Measurement) -> str:
    """What a bar is: a part of the value, of the eigenvector, or a norm."""
    layers = found.details["layers"]
    if any(isinstance(value, Mapping) for value in layers.values()):
        return "spectral norm of each matrix"
    if "residual" in found.details:
        return "share of the top eigenvector in each tensor"
    return "contribution of each tensor"
