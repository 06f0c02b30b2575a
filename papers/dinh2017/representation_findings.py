"""What we found for section D: errors, likelihoods, distances and divergences."""

from __future__ import annotations

import itertools
import statistics
from typing import Any

from papers.dinh2017.distances import DIVERGENCES, EUCLIDEAN
from papers.dinh2017.verdicts import AGREES, Finding, verdict
from papers.experiment import Results
from papers.page import number

CHANGES = {"standardizing": "standardized", "whitening": "whitened"}
# Relative differences of divergences below this are rounding.
ROUNDING = 1e-8


def swapped(results: Results, kind: str) -> list[int]:
    """The neighbours that pixels and another representation rank in opposite order.

    Both by more than two standard errors.
    """
    return [
        one["neighbours"]
        for one in results["representation"]["models"][1:]
        if significant(one["pixels"]) * significant(one[kind]) < 0
    ]


def significant(one: dict[str, float]) -> int:
    """The sign of a lead of more than two standard errors, else 0."""
    if abs(one["lead"]) <= 2 * one["standard error of the lead"]:
        return 0
    return 1 if one["lead"] > 0 else -1


def representation_error(results: Results) -> Finding:
    models = results["representation"]["models"][1:]
    found = {name: swapped(results, kind) for name, kind in CHANGES.items()}
    counts = [f"{name} does so for {number(n) or 'none'}" for name, n in found.items()]
    words = (
        "to put linear regression and nearest neighbours in the opposite order: "
        f"{', '.join(counts)} of the neighbours "
        f"{number([one['neighbours'] for one in models])}"
    )
    turned = [name for name, neighbours in found.items() if neighbours]
    some = f"agrees for {' and '.join(turned)} only"
    every = len(turned) == len(found)
    return words, verdict(bool(turned), AGREES if every else some)


def likelihood_spread(results: Results) -> float:
    """How far the log-likelihood ratios of one pair differ between representations."""
    base, *others = results["representation"]["models"]
    kinds = results["representation"]["log determinants"]
    spreads = []
    for one in others:
        ratios = [one[k]["log-likelihood"] - base[k]["log-likelihood"] for k in kinds]
        spreads.append(max(ratios) - min(ratios))
    return max(spreads)


def representation_likelihood(results: Results) -> Finding:
    spread = likelihood_spread(results)
    words = f"log-likelihood ratios differ by at most {number(spread)} between representations"
    return words, verdict(spread < 1e-8)


def distance_error(results: Results) -> Finding:
    models = compared_models(results)
    count = len(models) * (len(models) - 1) // 2
    counts = [
        f"{'the Earth mover' if name == 'W1' else name}: {name_of} "
        f"{len(opposite(models, name, kind))}"
        for name in EUCLIDEAN
        for name_of, kind in CHANGES.items()
    ]
    every = all(opposite(models, "W1", kind) for kind in CHANGES.values())
    words = (
        f"pairs of models, of {count}, that a change of representation puts in the "
        f"opposite order. {'; '.join(counts)}"
    )
    return words, verdict(every)


def divergence_same(results: Results) -> Finding:
    spread = divergence_spread(results)
    models = compared_models(results)
    turned = [
        pair
        for name in DIVERGENCES
        for kind in CHANGES.values()
        for pair in opposite(models, name, kind)
    ]
    words = (
        f"{', '.join(DIVERGENCES)}: values differ by at most {number(spread)} (relative) "
        f"between representations, and {len(turned)} pairs change their order"
    )
    return words, verdict(spread < ROUNDING and not turned)


def compared_models(results: Results) -> list[dict[str, Any]]:
    """All but the truth itself, whose distance from the truth is 0."""
    return results["distances"]["models"][1:]


def opposite(
    models: list[dict[str, Any]], name: str, kind: str
) -> list[tuple[str, str]]:
    """The pairs that pixels and another representation rank in opposite order."""
    return [
        (one["model"], other["model"])
        for one, other in itertools.combinations(models, 2)
        if sign(one["pixels"][name], other["pixels"][name])
        * sign(one[kind][name], other[kind][name])
        < 0
    ]


def sign(first: Any, second: Any) -> int:
    """Of second - first: beyond rounding or, for samples, two standard errors."""
    if isinstance(first, list):
        gaps = [b - a for a, b in zip(first, second, strict=True)]
        gap = statistics.mean(gaps)
        error = 2 * statistics.stdev(gaps) / len(gaps) ** 0.5
    else:
        gap, error = second - first, ROUNDING * max(abs(first), abs(second))
    if abs(gap) <= error:
        return 0
    return 1 if gap > 0 else -1


def divergence_spread(results: Results) -> float:
    """The largest relative difference of one divergence between representations."""
    spreads = []
    for one in compared_models(results):
        for name in DIVERGENCES:
            values = [one[kind][name] for kind in ("pixels", *CHANGES.values())]
            spreads.append((max(values) - min(values)) / max(values))
    return max(spreads)
