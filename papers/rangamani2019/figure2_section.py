"""The page's section on Figure 2, and what the stored lines say of it."""

from __future__ import annotations

from papers.experiment import Results
from papers.page import number, table
from papers.rangamani2019 import cifar, cifar_cells, figure2, minima, table4
from papers.rangamani2019.lines import NORMALIZATIONS
from papers.rangamani2019.minima import Cell, title_of

ABOUT = """\
Figure 2 of the paper shows the loss on lines W + tV through the minima of AlexNet and VGG16,
with V drawn at random and every layer of it made as long as that of W. "The large-batch plots
are above the small-batch plots", it says, and prints no numbers.

Ours are the lines of every network of Table 4 whose result holds them: five directions for a
network, the same draws for every network of its shape, on the first 2,000 training images.
Layer-normalized lines are the paper's. Filter-normalized ones (Li et al. 2018) give every
output of a layer its own length. Neither notices rescaled layers. The curves are geometric
means over all networks and directions, the bands one standard deviation of the logarithms.
"""
HEIGHTS = """\
A line also lies above another where its minimum does, so that two things are compared at
t = ±0.1 to ±1: the loss itself, and its rise above the loss at t = 0, which is what sharpness
is about. Of one network we take the geometric mean of the losses, or the mean of the rises,
over its directions and both signs. Each cell gives large over small batch (geometric means
over the networks), in how many pairs of equal seeds the small batch has the smaller one, and
the p-value of the exact sign-flip test.
"""


def section(results: Results) -> str:
    """What is drawn, who lies above whom, and which networks have no lines."""
    found = figure2.cells(results)
    parts = [ABOUT, *(f"![{_alt(cell)}](figures/{_file(cell)})\n" for cell in found)]
    if found:
        said = "\n".join(f"- {sentence(cell)}" for cell in found)
        parts += [_heights(found), f"{said}\n"]
    return "\n".join([*parts, missing(results)])


def sentence(cell: Cell) -> str:
    """Who lies above whom in one cell, and whose loss rises faster."""
    said = []
    for normalize in NORMALIZATIONS:
        count, every = figure2.above(cell, normalize)
        said.append(f"at {count} of {every} points ({normalize}-normalized)")
    words = (
        f"{cell.title}: the large batches' mean line is above the small ones' "
        f"{' and '.join(said)}."
    )
    far = max(figure2.distances(cell), default=None)
    if far is None:
        return words
    rise = figure2.compare_at(cell, "layer", far, rise=True)
    if rise.ratio is None:
        return f"{words} No pair has a rise at t = ±{far:g} that could be compared."
    steeper = {"small": "more", "large": "less", "neither": "as much"}[
        str(rise.smaller)
    ]
    return (
        f"{words} From their own minima to t = ±{far:g} (layer-normalized) the large "
        f"batches rise {steeper}: {number(rise.ratio, 3)} times (p = "
        f"{number(rise.sign_flip, 3)}, {rise.pairs} pairs)."
    )


def missing(results: Results) -> str:
    """Plain words on the networks without lines."""
    have = {(cell.protocol, cell.network) for cell in figure2.cells(results)}
    run = {(cell.protocol, cell.network) for cell in minima.cells(results)}
    run |= {(cell.protocol, cell.network) for cell in cifar_cells.cells(results)}
    no_lines = []
    rest = []
    for protocols, networks in (
        (table4.PROTOCOLS, table4.NETWORKS),
        (cifar.PROTOCOLS, cifar.SHAPES),
    ):
        for one in ((p, n) for n in networks for p in protocols):
            if one in have:
                continue
            if one in run:
                no_lines.append(title_of(*one))
            else:
                rest.append(f"{title_of(*one)}: {cifar_cells.state(results, *one)}")
    said = []
    if no_lines:
        said.append(
            f"Without lines: {'; '.join(no_lines)}. These networks were trained and "
            "measured, but their weights are not kept and no lines were stored with "
            "their results."
        )
    if rest:
        said.append(f"Not drawn: {'; '.join(rest)}.")
    return " ".join(said) + "\n" if said else ""


def _heights(found: list[Cell]) -> str:
    rows = []
    for cell in found:
        for normalize in NORMALIZATIONS:
            for rise, what in ((False, "loss"), (True, "rise")):
                row = [f"{cell.title}, {normalize}-normalized", what]
                for distance in figure2.DISTANCES:
                    row.append(_height(cell, normalize, distance, rise))
                rows.append(row)
    head = ["networks, lines", "", *(f"t = ±{one:g}" for one in figure2.DISTANCES)]
    return f"{HEIGHTS}\n{table(head, rows)}"


def _height(cell: Cell, normalize: str, distance: float, rise: bool) -> str:
    found = figure2.compare_at(cell, normalize, distance, rise)
    if found.ratio is None:
        return "–"
    return (
        f"{number(found.ratio, 3)}, {found.small_is_smaller} of {found.pairs}, p = "
        f"{number(found.sign_flip, 3)}"
    )


def _alt(cell: Cell) -> str:
    return f"The loss on lines through the minima: {cell.title}"


def _file(cell: Cell) -> str:
    return figure2.file_name(cell)
