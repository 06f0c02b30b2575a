"""`python -m papers.tsuzuku2019.run`: the examples and Algorithm 1 of Tsuzuku et al."""

from __future__ import annotations

from typing import Any

from papers.experiment import Paper, Run, Tolerance
from papers.runner import main
from papers.tsuzuku2019 import declared, random_labels, wide
from papers.tsuzuku2019.algorithm1 import algorithm1
from papers.tsuzuku2019.appendix import FIRST, SECOND, appendix
from papers.tsuzuku2019.branches import branches
from papers.tsuzuku2019.constants import constants
from papers.tsuzuku2019.descent import descent
from papers.tsuzuku2019.drawings import figures
from papers.tsuzuku2019.readme import page

CE, NORMALIZED = "cross-entropy", "normalized-cross-entropy"
POINTS = ("trained", "layers", "nodes")
TWINS = {"layers": [10.0, 1.0, 0.1], "spread": 1.0, "seed": 1}
APPENDIX = {
    FIRST: [[1, 2], [3, 4]],
    SECOND: [[5, 6], [7, 8]],
    # Unit and α, as between (38) and (41).
    "moves": [[0, 10.0], [1, 0.1]],
    "inputs": [[1, 0], [0, 1], [1, 1], [-1, 1], [1, -0.25]],
    "targets": [[0, 0]] * 5,
}
CONSTANTS = {
    "noise": {"hessian": [[2, 1], [1, 3]], "point": [0.5, -1]},
    "matrices": {"sums": [2, 3], "squares": [5, 7], "lam": 0.8},
    "pair": {
        "curvature": [[1, 2, 0.5], [0.25, 3, 1]],
        "squares": [[1, 0.25, 4], [9, 1 / 9, 1]],
    },
    "lambdas": [0.5, 1.0, 2.0],
    "direct": {
        "weights": [[1, -0.5, 2], [3, 0.25, -1]],
        "inputs": [[1, 0.5, -1], [0.25, 2, 1], [-1, 1, 0.5], [2, -0.5, 0.25]],
        "lam": 0.5,
        "draws": 4000,
    },
    "divergence": {"weights": [0.5, -0.25, 0.75], "prior": 0.5, "posterior": 0.25},
    "deviation": {"risk": 0.3, "samples": 10, "lam": 5.0},
}


def network(quick: bool, widths: list[int], bias: bool) -> dict[str, Any]:
    return {
        "data": "mnist",
        "samples": 500 if quick else 1000,
        "widths": widths,
        "bias": bias,
        "batch": 50 if quick else 100,
        "epochs": 40 if quick else 20,
        "rate": 1e-3,
        "seed": 0,
    }


def small_network() -> dict[str, Any]:
    """Digits in both forms: small enough for a thousand probes."""
    return {**network(True, [48, 32], True), "data": "digits"}


def estimate(kind: str, probes: list[int], **more: Any) -> dict[str, Any]:
    return {
        "kind": kind,
        "probes": probes,
        "loss": CE,
        "point": "trained",
        "seed": 1,
        **more,
    }


def difference(probes: list[int], **more: Any) -> dict[str, Any]:
    """(61) with a radius of 1 % of each tensor's root mean square, unless told."""
    return estimate("differences", probes, **{"radius": "rms", "size": 0.01, **more})


def estimates(many: list[int], some: int) -> list[dict[str, Any]]:
    """What the large network is asked for."""
    found = []
    for loss in (CE, NORMALIZED):
        found += [estimate("products", many, loss=loss), difference(many, loss=loss)]
        found += [estimate("gauss-newton", many, loss=loss)]
    for point in POINTS:
        found += [
            estimate("products", [some], point=point),
            difference([some], point=point),
            difference([some], radius="equal", size=0.001, point=point),
            estimate("scaled products", [some], point=point),
            estimate("gauss-newton", [some], point=point),
        ]
    for radius, size in (("rms", 0.1), ("rms", 0.001), ("frobenius", 0.01)):
        found.append(difference([some], radius=radius, size=size))
    return found


def runs(quick: bool) -> list[Run]:
    hidden = [64, 64] if quick else [512, 512]
    many = [1, 10, 100] if quick else [1, 3, 10, 30, 100]
    more = [1, 10, 100] if quick else [1, 3, 10, 30, 100, 300, 1000]
    large = network(quick, hidden, True)
    return [
        Run("appendix", APPENDIX, appendix),
        Run(
            "branches",
            {
                **network(quick, [32, 32] if quick else [64, 64], False),
                "layer": 0,
                "shares": [0.1, 0.25, 0.5, 0.75, 0.99, 1.0],
                "tol": 1e-8,
            },
            branches,
            ("data",),
        ),
        Run(
            "constants",
            CONSTANTS,
            constants,
            on_cpu=True,
            revision=2,
            # A search with random draws ends within its own error, 0.8 %.
            tolerances={"direct": Tolerance(relative=0.01)},
        ),
        Run(
            "algorithm1-small",
            {
                "network": small_network(),
                "twins": TWINS,
                "runs": 10,
                "estimates": [
                    estimate("products", more),
                    difference(more),
                    estimate("gauss-newton", more),
                ],
            },
            algorithm1,
            revision=2,
        ),
        Run(
            "algorithm1",
            {
                "network": large,
                "twins": TWINS,
                "runs": 3,
                "estimates": estimates(many, 10),
            },
            algorithm1,
            ("data",),
        ),
        Run(
            "descent",
            {
                "network": large,
                "twins": TWINS,
                "loss": CE,
                "tries": [["trained", 1.0], ["trained", 0.01]]
                + [[point, 0.1] for point in POINTS],
                "steps": 300 if quick else 2000,
                "within": 0.01,
            },
            descent,
            ("data",),
        ),
        *declared.runs(quick),
        *random_labels.runs(quick),
        *wide.runs(quick),
    ]


PAPER = Paper(
    "tsuzuku2019",
    "Tsuzuku, Sato and Sugiyama 2019: normalized flat minima",
    runs,
    figures,
    page,
)

if __name__ == "__main__":
    main(PAPER)
