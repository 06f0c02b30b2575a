"""The part of the page on distances and divergences between distributions."""

from __future__ import annotations

import math
import statistics
from typing import Any

from papers.dinh2017.distances import DIVERGENCES
from papers.dinh2017.representation import REPRESENTATIONS
from papers.dinh2017.representation_findings import (
    CHANGES,
    compared_models,
    divergence_spread,
    opposite,
)
from papers.experiment import Results
from papers.page import number, table


def distances(results: Results, expected: dict[str, Any]) -> str:
    found = results["distances"]
    settings = results.records["distances"]["settings"]
    rows = []
    for one in found["models"]:
        moved = [mean_and_error(one[kind]["W1"]) for kind in REPRESENTATIONS]
        exact = [one[kind]["W2"] for kind in REPRESENTATIONS]
        same = [one["pixels"][name] for name in DIVERGENCES]
        is_truth = one is found["models"][0]
        rows.append([one["model"], *moved, *([0] * 3 if is_truth else exact)])
        rows[-1] += [0] * 3 if is_truth else same
    head = ["model", *(f"Earth mover, {kind}" for kind in REPRESENTATIONS)]
    head += [f"W2, {kind}" for kind in REPRESENTATIONS]
    head += [f"{name}, in all three" for name in DIVERGENCES]
    return f"""\
![Distances and divergences](figures/distances.svg)

The truth is a normal distribution with the mean and the covariance of
{settings["images"]} images ({found["pixels"]} pixels that vary, after taking squares of
{settings["pool"]} × {settings["pool"]} pixels as one), and each model a normal distribution
that gets one thing wrong. Then every divergence has a value that does not need the densities
of images, which nobody knows. Truth and model are mapped into each representation and
compared there, from their means and covariances in it.

The *Earth mover's distance* is that of {settings["points"]} samples of each (the cheapest
matching, mean ± standard error over {settings["repeats"]} draws). {closer_words(found)} *W2*,
with squared distances, has a closed form and no such error. *Kullback-Leibler* and
*Hellinger* have closed forms; the *total variation* is a mean over {settings["samples"]}
samples of the truth.

{table(head, rows)}
{examples(results)} The divergences are the same in all three representations (to
{number(divergence_spread(results))}, relatively), so their rankings are, too.
"""


def closer_words(found: dict[str, Any]) -> str:
    """What samples of the truth itself say of the error of so few samples."""
    truth, *others = (
        (one["model"], statistics.mean(one["pixels"]["W1"])) for one in found["models"]
    )
    closer = [f'"{name}"' for name, mean in others if mean < truth[1]]
    if not closer:
        return (
            "Two sets of samples of the truth itself are apart, too: with so few samples "
            "in so many dimensions the distance is too large."
        )
    return (
        "With so few samples in so many dimensions the distance is too large: two sets of "
        "samples of the truth itself are apart, too, and in pixels "
        f"{' and '.join(closer)} even come closer to it."
    )


def mean_and_error(values: list[float]) -> str:
    error = statistics.stdev(values) / len(values) ** 0.5
    return f"{number(statistics.mean(values))} ± {number(error, 1)}"


def examples(results: Results) -> str:
    """For each change of the representation, the pair that it turns around most."""
    models = {one["model"]: one for one in compared_models(results)}
    parts = []
    for name, kind in CHANGES.items():
        pairs = opposite(list(models.values()), "W2", kind)
        if not pairs:
            continue

        def contrast(pair: tuple[str, str], kind: str = kind) -> float:
            return min(
                abs(math.log(models[pair[0]][one]["W2"] / models[pair[1]][one]["W2"]))
                for one in ("pixels", kind)
            )

        first, second = max(pairs, key=contrast)
        before, after = (
            [number(models[one][place]["W2"]) for one in (first, second)]
            for place in ("pixels", kind)
        )
        parts.append(
            f'{name.capitalize()} turns {len(pairs)} pairs around by W2, such as "{first}" '
            f'and "{second}": {" and ".join(before)} in pixels, {" and ".join(after)} '
            "after it."
        )
    return " ".join(parts)
