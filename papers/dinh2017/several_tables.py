"""The part of the page on several minima."""

from __future__ import annotations

from typing import Any

from papers.dinh2017.ranking import MEASURES, RANKED_BY
from papers.dinh2017.ranking_findings import keepers, keeps, pairs_swapped
from papers.dinh2017.several_minima import MOVES
from papers.experiment import Results
from papers.page import number, table


def several_minima(results: Results, expected: dict[str, Any]) -> str:
    found = results["several-minima"]
    trainings = results.records["several-minima"]["settings"]["trainings"]
    networks = [
        [
            index + 1,
            own["batch"],
            *(f"{one[key]:.1%}" for key in ("train accuracy", "test accuracy")),
            one["loss"],
            one["gradient"],
            *(
                values[index][RANKED_BY]["value"]
                for values in (
                    found["before"],
                    *(found["moves"][move]["values"] for move in MOVES),
                )
            ),
        ]
        for index, (own, one) in enumerate(
            zip(trainings, found["networks"], strict=True)
        )
    ]
    head = ["minimum", "batch", "train", "test", "loss", "gradient", "spectral norm"]
    head += [f"after {move}" for move in MOVES]
    rows = [[name, *(fate(results, move, name) for move in MOVES)] for name in MEASURES]
    worst = max(one["output change"] for one in found["moves"].values())
    return f"""\
![Several minima](figures/several-minima.svg)

{len(networks)} networks of one shape, trained with different batches and seeds, and four moves
that do not change what they compute (outputs move by at most {number(worst)}, relatively).
They stand where training stopped, with gradients that are not 0.
*Rescaled layers*: (αθ₁, θ₂/α) with an α for each minimum, chosen so that the flattest by the
spectral norm of the Hessian becomes the sharpest, and so on. *Radial maps*: one ball around
each minimum, none of which meets another one, with radii that hand the same values out in the
opposite order. *Standardized* and *whitened inputs*: the network reads pixels that are divided
by their standard deviations, or whitened, and the first layer takes that back. Radii for
{len(found["orders"])} random orders were tried, too: the table of claims says how many came
out.

{table(head, networks)}
Each measure's ranking, pair by pair: how many pairs a move turned around, of those that the
measure can decide before and after. "Kept" means that every value is the same.

{table(["measure", *MOVES], rows)}
{inputs_words(results)}
"""


def fate(results: Results, move: str, name: str) -> str:
    """What a move did to the pairs of minima that a measure ranks."""
    swapped, decided = pairs_swapped(results, move, name)
    if not decided:
        return "does not apply"
    kept = "kept, " if keeps(results, move, name) else ""
    return f"{kept}{swapped} of {decided}"


def inputs_words(results: Results) -> str:
    """Which measures know nothing of the representation of the inputs."""
    parts = []
    for move in MOVES[2:]:
        kept = keepers(results, move)
        swapped, decided = pairs_swapped(results, move, RANKED_BY)
        names = ", ".join(kept) if kept else "none"
        parts.append(
            f"With {move} the spectral norm ranks {swapped} of {decided} pairs the other "
            f"way round; measures that keep their values: {names}."
        )
    return (
        "**The representation of the inputs matters to flatness, too.** "
        f"{' '.join(parts)} That a first layer can take a scale of each input is the same "
        "as rescaling a unit, and measures that are invariant unit by unit do not see it. "
        "No measure claims anything about whitening, which mixes the inputs."
    )
