"""`python -m papers.rangamani2019.run`: the experiments of Rangamani et al. 2019."""

from __future__ import annotations

from papers.experiment import Paper, Run
from papers.rangamani2019 import (
    cifar,
    convergence,
    drawings,
    invariance,
    quotient,
    readme,
    riemannian,
    table4,
)
from papers.runner import main


def runs(quick: bool) -> list[Run]:
    """The propositions and definitions, Tables 2 and 3, Figure 1, Table 4."""
    parts = (quotient, riemannian, invariance, convergence, table4, cifar)
    return [run for part in parts for run in part.runs(quick)]


PAPER = Paper(
    "rangamani2019",
    "Rangamani et al. 2019: A Scale Invariant Flatness Measure for Deep Network Minima",
    runs,
    drawings.draw,
    readme.page,
)

if __name__ == "__main__":
    main(PAPER)
