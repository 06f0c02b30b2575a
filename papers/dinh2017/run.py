"""`python -m papers.dinh2017.run`: every experiment on Dinh et al. (2017)."""

from __future__ import annotations

from papers.dinh2017 import (
    derivatives,
    distances,
    drawings,
    eigenvalues,
    epsilon,
    gradient,
    gradient_networks,
    orbit,
    radial,
    ranking,
    representation,
    several_minima,
    smallest,
    text,
    volume,
)
from papers.dinh2017.network_findings import KINDS, orbit_runs
from papers.experiment import Paper, Run, Tolerance
from papers.runner import main

DATA = ("data",)
# Seeds in this range were not chosen by their results; the page counts what they give.
SEEDS = list(range(10, 22))


def runs(quick: bool) -> list[Run]:
    small = [2, 3, 3, 3]
    seeds = SEEDS[:3] if quick else SEEDS
    return [
        Run("radial-map", radial.settings(), radial.compute, on_cpu=True),
        Run("orbit-layer", orbit.settings(quick, "layer"), orbit.compute, DATA),
        Run("orbit-node", orbit.settings(quick, "node"), orbit.compute, DATA),
        *(
            Run(name, orbit.settings(quick, kind, network), orbit.compute, DATA)
            for network in ("biases", "convolutions")
            for name, kind in zip(orbit_runs(network), KINDS, strict=True)
        ),
        Run("smallest-trace", smallest.settings(), smallest.compute, on_cpu=True),
        Run("volume", volume.settings(quick), volume.compute, on_cpu=True),
        Run("epsilon-sharpness", epsilon.settings(quick), epsilon.compute, DATA),
        Run("theorem1", gradient.settings(quick), gradient.compute, DATA),
        Run(
            "theorem1-networks",
            gradient_networks.settings(quick),
            gradient_networks.compute,
            DATA,
        ),
        Run("derivatives", derivatives.settings(), derivatives.compute, on_cpu=True),
        Run(
            "theorem2-without-biases",
            eigenvalues.settings(small, False, seeds),
            eigenvalues.compute,
            on_cpu=True,
            repeats=False,
        ),
        Run(
            "theorem2-with-biases",
            eigenvalues.settings(small, True, seeds),
            eigenvalues.compute,
            on_cpu=True,
            repeats=False,
        ),
        Run(
            "theorem2-known-ranks",
            eigenvalues.at_zero_loss(small, True, [3]),
            eigenvalues.compute,
            on_cpu=True,
        ),
        Run(
            "theorem2-deep",
            eigenvalues.at_zero_loss([4] * 6, False, list(range(2 if quick else 8))),
            eigenvalues.compute,
            on_cpu=True,
        ),
        Run(
            "theorem2-convolutions",
            eigenvalues.convolutions_at_zero_loss(
                7, [1, 3, 3], 2, list(range(1 if quick else 4))
            ),
            eigenvalues.compute,
            on_cpu=True,
        ),
        Run("ranking", ranking.settings(quick), ranking.compute, DATA),
        Run(
            "several-minima",
            several_minima.settings(quick),
            several_minima.compute,
            DATA,
        ),
        Run(
            "representation",
            representation.settings(quick),
            representation.compute,
            DATA,
        ),
        Run(
            "distances",
            distances.settings(quick),
            distances.compute,
            DATA,
            # The root of a rounding error, where a distribution is compared with itself.
            tolerances={"W2": Tolerance(absolute=1e-5)},
        ),
    ]


PAPER = Paper(
    name="dinh2017",
    title="Dinh et al. 2017: Sharp minima can generalize for deep nets",
    runs=runs,
    figures=drawings.draw,
    page=text.page,
)

if __name__ == "__main__":
    main(PAPER)
