"""Small against large batches where the train losses are alike, measure by measure."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from papers.experiment import Results
from papers.page import number, table
from papers.rangamani2019 import cifar, cifar_cells, minima, table4
from papers.rangamani2019.cause import LITTLE
from papers.rangamani2019.minima import (
    MEASURES,
    NORMALIZED,
    Cell,
    Measure,
    log_loss,
    logarithm,
    title_of,
)
from papers.rangamani2019.statistics import Paired, compare, holm, sign_flip

# The protocols that train both batch sizes to one loss.
PLACES = (
    *(("printed", network) for network in table4.NETWORKS),
    *(("clean", network) for network in cifar.SHAPES),
)
LEVEL = 0.05
LARGER, SMALLER, OPEN, NOTHING = "larger", "smaller", "not told apart", "no pair"


@dataclass(frozen=True)
class Verdict:
    """What all pairs together say of one measure.

    Attributes:
        measure: which.
        cells: the comparison in each cell.
        pairs: how many were used.
        ratio: large over small, the geometric mean over the pairs.
        small_is_smaller: in how many pairs.
        p: of the exact sign-flip test over all pairs.
        corrected: the same after Holm's correction for the number of measures.
    """

    measure: Measure
    cells: list[Paired]
    pairs: int
    ratio: float | None = None
    small_is_smaller: int = 0
    p: float | None = None
    corrected: float | None = None

    @property
    def word(self) -> str:
        """What the values of the large batches are."""
        if self.ratio is None or self.corrected is None:
            return NOTHING
        if self.corrected >= LEVEL:
            return OPEN
        return LARGER if self.ratio > 1 else SMALLER


def every(results: Results) -> list[Cell]:
    """All cells of Table 4 that have pairs, whatever their losses."""
    found = (*minima.cells(results), *cifar_cells.cells(results))
    return [cell for cell in found if cell.small]


def alike(results: Results) -> list[Cell]:
    """The cells of PLACES with those pairs alone that met their goal at a like loss."""
    made = {(cell.protocol, cell.network): cell for cell in every(results)}
    found = []
    for place in PLACES:
        cell = made.get(place)
        pairs = [pair for pair in _pairs(cell) if _alike(*pair)] if cell else []
        if cell and pairs:
            small, large = map(list, zip(*pairs, strict=True))
            found.append(Cell(cell.protocol, cell.network, cell.sizes, small, large))
    return found


def asked(results: Results) -> list[Cell]:
    """The cells of PLACES that have pairs, whatever their losses."""
    return [c for c in every(results) if (c.protocol, c.network) in PLACES]


def verdicts(found: list[Cell]) -> list[Verdict]:
    """One for each measure, corrected for their number."""
    made = [
        pooled(one, [cell.compare(one) for cell in found])
        for one in MEASURES
        if any(cell.has(one) for cell in found)
    ]
    tested = [one for one in made if one.p is not None]
    corrected = holm([one.p for one in tested if one.p is not None])
    known = {one.measure.request: p for one, p in zip(tested, corrected, strict=True)}
    return [
        Verdict(**{**vars(one), "corrected": known.get(one.measure.request)})
        for one in made
    ]


def pooled(measure: Measure, cells: list[Paired]) -> Verdict:
    """The pairs of all cells as one sample."""
    ratios = [one for cell in cells for one in cell.log_ratios]
    if not ratios:
        return Verdict(measure, cells, 0)
    return Verdict(
        measure,
        cells,
        pairs=len(ratios),
        ratio=math.exp(math.fsum(ratios) / len(ratios)),
        small_is_smaller=sum(one > 0 for one in ratios),
        p=sign_flip(ratios),
    )


def measures_table(found: list[Cell]) -> str:
    """Every measure in every cell, and over all pairs."""
    rows: list[list[Any]] = [
        [
            one.measure.label,
            one.measure.unmoved_by,
            *(_cell(cell) for cell in one.cells),
            number(one.ratio, 3),
            f"{one.small_is_smaller} of {one.pairs}",
            number(one.p, 3),
            number(one.corrected, 2),
            one.word,
        ]
        for one in verdicts(found)
    ]
    for label, find in RESTS.items():
        own = [find(cell) for cell in found]
        one = pooled(MEASURES[0], own)
        rows.append(
            [
                label,
                "",
                *map(_cell, own),
                number(one.ratio, 3),
                f"{one.small_is_smaller} of {one.pairs}",
                number(one.p, 3),
                None,
                "",
            ]
        )
    titles = [f"{cell.title}, {len(cell.small)} pairs" for cell in found]
    head = [
        "measure",
        "not moved by rescaled",
        *titles,
        "all pairs",
        "small smaller in",
    ]
    return table([*head, "p", "p, corrected", "the large batches are"], rows)


RESTS: dict[str, Callable[[Cell], Paired]] = {
    "train loss": lambda cell: cell.compare_losses(),
    "the paper's measure / train loss": lambda cell: cell.compare_quotients(),
}


def sentences(found: list[Cell]) -> list[str]:
    """What the table says, in words."""
    made = verdicts(found)
    return [_of_the_paper(found, made), _of_all(made), _of_the_rest(found, made)]


def _of_the_paper(found: list[Cell], made: list[Verdict]) -> str:
    where = "; ".join(f"{len(cell.small)} of {cell.title}" for cell in found)
    total = sum(len(cell.small) for cell in found)
    own = next((one for one in made if one.measure is MEASURES[0]), None)
    if own is None or own.ratio is None:
        return (
            f"At the same train loss ({total} pairs: {where}) the paper's measure has no "
            "value that can be used."
        )
    judged = {
        LARGER: "are sharper than the small ones",
        SMALLER: "are flatter than the small ones",
        OPEN: "cannot be told from the small ones",
    }[own.word]
    alone = own.word == OPEN and own.p is not None and own.p < LEVEL
    among = ", once it is one of many that are asked" if alone else ""
    return (
        f"At the same train loss ({total} pairs: {where}) the large batches {judged} by "
        f"the paper's measure{among}: it is {number(own.ratio, 3)} times theirs on "
        f"average, the small batch has the smaller one in {own.small_is_smaller} of "
        f"{own.pairs}, p = {number(own.p, 3)}, and {number(own.corrected, 2)} corrected "
        "for the number of measures."
    )


def _of_all(made: list[Verdict]) -> str:
    groups = {
        word: [one for one in made if one.word == word]
        for word in (LARGER, SMALLER, OPEN, NOTHING)
    }
    tested = len(made) - len(groups[NOTHING])
    words = [
        f"Of {tested} measures with pairs, the large batches have the larger values of "
        f"{_listed(groups[LARGER])} and the smaller ones of {_listed(groups[SMALLER])}; "
        f"{len(groups[OPEN])} do not tell the two apart at a corrected p of {LEVEL:g}."
    ]
    if groups[NOTHING]:
        labels = "; ".join(one.measure.label for one in groups[NOTHING])
        words.append(f"Without a pair that can be used: {labels}.")
    return " ".join(words)


def _of_the_rest(found: list[Cell], made: list[Verdict]) -> str:
    """What the small differences of the losses leave of those that were found."""
    loss = pooled(MEASURES[0], [cell.compare_losses() for cell in found])
    if loss.ratio is None:
        return "The losses of these pairs are not known well enough to compare them."
    asked = [one.measure for one in made if one.word in (LARGER, SMALLER)]
    asked = [one for one in asked if not one.logarithmic and one.loss != NORMALIZED]
    asked = [MEASURES[0], *(one for one in asked if one is not MEASURES[0])]
    rests = [
        (one, pooled(one, [over_loss(cell, one) for cell in found])) for one in asked
    ]
    said = [
        f"{number(rest.ratio, 3)} times by {one.label}, p = {number(rest.p, 3)}"
        for one, rest in rests
        if rest.ratio is not None
    ]
    return (
        f"The losses are alike, not equal: those of the large batches are "
        f"{number(loss.ratio, 3)} times those of the small ones (p = "
        f"{number(loss.p, 3)}). Divided by the loss, the values of the large batches are "
        f"these multiples: {'; '.join(said) or 'none that can be used'}."
    )


def over_loss(cell: Cell, measure: Measure) -> Paired:
    """A measure divided by the train loss, at small against large batches."""
    return compare(
        *([_over(one, measure) for one in side] for side in (cell.small, cell.large))
    )


def _over(network: dict[str, Any], measure: Measure) -> float | None:
    value, loss = logarithm(network, measure), log_loss(network)
    return None if value is None or loss is None else value - loss


def _listed(made: list[Verdict]) -> str:
    if not made:
        return "none"
    said = "; ".join(
        f"{one.measure.label}, {number(one.ratio, 3)} times" for one in made
    )
    return f"{len(made)} ({said})"


def left_out(results: Results) -> str:
    """Which cells, and which pairs of the others, are not part of the table."""
    made = {(cell.protocol, cell.network): cell for cell in every(results)}
    used = {(cell.protocol, cell.network): len(cell.small) for cell in alike(results)}
    said = []
    for place in PLACES:
        title = title_of(*place)
        if place not in made:
            said.append(f"{title}: {cifar_cells.state(results, *place)}")
            continue
        count = len(made[place].small)
        gone = count - used.get(place, 0)
        if gone:
            said.append(
                f"{title}: {gone} of {count} pairs are left out, because a network did "
                f"not reach its goal or the losses differ by more than 10^{LITTLE:g}"
            )
    return f"Not in it: {'; '.join(said)}.\n" if said else ""


def _pairs(cell: Cell) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return list(zip(cell.small, cell.large, strict=True))


def _alike(small: dict[str, Any], large: dict[str, Any]) -> bool:
    one, other = log_loss(small), log_loss(large)
    if one is None or other is None:
        return False
    met = small["reached"] is not False and large["reached"] is not False
    return met and abs(other - one) <= LITTLE * math.log(10)


def _cell(found: Paired) -> str:
    if found.ratio is None:
        return "–"
    return f"{number(found.ratio, 3)}, {found.small_is_smaller} of {found.pairs}"
