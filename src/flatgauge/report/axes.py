"""The axes of small figures: from values to pixels, with a few round numbers on the way."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

WIDTH, HEIGHT = 340, 210
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 30
WIDE = 30.0
"""From this ratio of the largest value to the smallest an axis is logarithmic."""


class Axis:
    """An axis that holds some values."""

    def __init__(self, values: Sequence[float], start: int, end: int, log: bool):
        self._log = log
        low, high = self._scaled(min(values)), self._scaled(max(values))
        room = (high - low or abs(low) or 1.0) * (0.04 if high > low else 0.5)
        self._low, self._high = low - room, high + room
        self._start, self._end = start, end

    def _scaled(self, value: float) -> float:
        return math.log10(value) if self._log else float(value)

    def __call__(self, value: float) -> float:
        """The place of a value."""
        share = (self._scaled(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        """Round numbers inside of the axis, about four."""
        if self._log:
            inside = range(math.ceil(self._low), math.floor(self._high) + 1)
            if len(inside) > 1:
                step = math.ceil(len(inside) / 4)
                return [10.0**power for power in inside[::step]]
        low = 10**self._low if self._log else self._low
        high = 10**self._high if self._log else self._high
        rough = (high - low) / 4
        unit = 10.0 ** math.floor(math.log10(rough))
        step = next(unit * one for one in (1, 2, 5, 10) if unit * one >= rough)
        first, last = math.ceil(low / step), math.floor(high / step)
        return [step * index for index in range(first, last + 1)]


def grid(across: Axis, up: Axis, whole: bool = True) -> Iterable[str]:
    """Lines and numbers; along the bottom whole numbers alone, unless all are wanted."""
    right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
    for tick in up.ticks():
        y = f"{up(tick):.1f}"
        yield f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{y}" y2="{y}"/>'
        yield f'<text class="up" x="{LEFT - 6}" y="{y}">{tick_shown(tick)}</text>'
    for tick in across.ticks():
        if not whole or tick == int(tick):
            x = f"{across(tick):.1f}"
            yield f'<text class="along" x="{x}" y="{bottom + 16}">{tick_shown(tick)}</text>'


def tick_shown(value: float) -> str:
    """A number beside an axis."""
    if value and not 1e-3 <= abs(value) < 1e6:
        return f"{value:.3g}".replace("-", "−")
    return f"{value:,.10g}".replace("-", "−")
