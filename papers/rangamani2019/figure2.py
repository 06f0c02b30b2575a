"""Figure 2: the lines of the loss that are stored, drawn and compared.

Everything is on logarithms of the loss, which spreads over orders of magnitude. A pair is
two networks of equal seeds, whose lines go along the same draws of the direction.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from papers.experiment import Results
from papers.figures import new_figure, save
from papers.rangamani2019 import cifar_cells, minima
from papers.rangamani2019.lines import NORMALIZATIONS
from papers.rangamani2019.minima import Cell
from papers.rangamani2019.statistics import Paired, compare

# The colours of Okabe and Ito, which colour-blind readers can tell apart.
COLOURS = {"small": "#0072B2", "large": "#D55E00"}
DISTANCES = (0.1, 0.2, 0.5, 1.0)  # at which lines are compared, of those on the axis
Network = dict[str, Any]


@dataclass(frozen=True)
class Curve:
    """The lines of several networks, summed up.

    Attributes:
        axis: t of every point.
        mean: the geometric mean of the losses there.
        low: the mean over exp of one standard deviation of the logarithms.
        high: the mean times that.
        lines: how many there are.
    """

    axis: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]
    lines: int


def cells(results: Results) -> list[Cell]:
    """Every cell of Table 4 with the pairs that have lines, if there are any."""
    found = []
    for cell in (*minima.cells(results), *cifar_cells.cells(results)):
        pairs = [
            (small, large)
            for small, large in zip(cell.small, cell.large, strict=True)
            if small.get("lines") and large.get("lines")
        ]
        if pairs:
            small, large = map(list, zip(*pairs, strict=True))
            found.append(Cell(cell.protocol, cell.network, cell.sizes, small, large))
    return found


def curve(networks: Sequence[Network], normalize: str) -> Curve:
    """Mean and spread over all networks and directions; NaN where no loss is known."""
    every = [line for one in networks for line in one["lines"][normalize]]
    logs = [[_log(line[k]) for line in every] for k in range(len(every[0]))]
    means, spreads = [], []
    for column in logs:
        known = [one for one in column if one is not None]
        means.append(float(np.mean(known)) if known else math.nan)
        spreads.append(float(np.std(known, ddof=1)) if len(known) > 1 else 0.0)
    return Curve(
        axis=list(networks[0]["lines"]["axis"]),
        mean=[math.exp(m) for m in means],
        low=[math.exp(m - s) for m, s in zip(means, spreads, strict=True)],
        high=[math.exp(m + s) for m, s in zip(means, spreads, strict=True)],
        lines=len(every),
    )


def compare_at(cell: Cell, normalize: str, distance: float, rise: bool) -> Paired:
    """The losses at both ends ±distance, or how far they are above the middle, by pairs.

    A network's value is over its directions and both signs: the mean logarithm of the
    loss, or the logarithm of the mean rise. It has none where a loss is no number, or
    where the loss does not rise.
    """
    return compare(
        *(
            [_height(one["lines"], normalize, distance, rise) for one in side]
            for side in (cell.small, cell.large)
        )
    )


def above(cell: Cell, normalize: str) -> tuple[int, int]:
    """At how many points off the middle the large batches' mean is the higher, of all."""
    small, large = (curve(side, normalize) for side in (cell.small, cell.large))
    pairs = [
        (one, other)
        for t, one, other in zip(small.axis, small.mean, large.mean, strict=True)
        if t and not math.isnan(one) and not math.isnan(other)
    ]
    return sum(other > one for one, other in pairs), len(pairs)


def steeper(cell: Cell, normalize: str) -> bool:
    """Whether the large batches' loss rises more on the way to the ends."""
    known = distances(cell)
    ratio = compare_at(cell, normalize, known[-1], rise=True).ratio if known else None
    return ratio is not None and ratio > 1


def distances(cell: Cell) -> list[float]:
    """Those of DISTANCES that the axis has."""
    axis = cell.small[0]["lines"]["axis"]
    return [one for one in DISTANCES if _place(axis, one) is not None]


def file_name(cell: Cell) -> str:
    """Such as figure2-authors-vgg16.svg."""
    return f"figure2-{cell.protocol}-{cell.network}.svg"


def draw(results: Results, folder: Path) -> None:
    """One figure for each cell that has lines: by layers left, by filters right."""
    for cell in cells(results):
        figure, panels = new_figure(len(NORMALIZATIONS), width=4.6, height=3.6)
        for panel, normalize in zip(panels, NORMALIZATIONS, strict=True):
            for side, size in zip(("small", "large"), cell.sizes, strict=True):
                networks = cell.small if side == "small" else cell.large
                found = curve(networks, normalize)
                label = f"batches of {size}, {found.lines} lines"
                panel.plot(found.axis, found.mean, color=COLOURS[side], label=label)
                panel.fill_between(
                    found.axis,
                    found.low,
                    found.high,
                    color=COLOURS[side],
                    alpha=0.25,
                    linewidth=0,
                )
            panel.set_yscale("log")
            panel.set_title(f"{normalize}-normalized")
            panel.set_xlabel("t")
            panel.legend(fontsize=7)
        panels[0].set_ylabel("train loss")
        figure.suptitle(cell.title)
        save(figure, folder / file_name(cell))


def _height(
    lines: dict[str, Any], normalize: str, distance: float, rise: bool
) -> float | None:
    axis = lines["axis"]
    places = [_place(axis, t) for t in (0.0, -distance, distance)]
    if None in places:
        return None
    middle, *ends = (place for place in places if place is not None)
    losses = [line[k] for line in lines[normalize] for k in ends]
    middles = [line[middle] for line in lines[normalize] for _ in ends]
    if None in losses or None in middles:
        return None
    if rise:
        rises = [a - b for a, b in zip(losses, middles, strict=True)]
        return _log(sum(rises) / len(rises))
    logs = [_log(one) for one in losses]
    known = [one for one in logs if one is not None]
    return sum(known) / len(known) if len(known) == len(logs) else None


def _place(axis: Sequence[float], t: float) -> int | None:
    """Where t is on the axis."""
    near = [k for k, one in enumerate(axis) if abs(one - t) < 1e-9]
    return near[0] if near else None


def _log(value: float | None) -> float | None:
    return math.log(value) if value is not None and value > 0 else None
